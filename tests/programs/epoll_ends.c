/* Many connections whose peers have closed, and which are kept: others of the set go on, and nobody waits without sleeping. */
#include "epoll.h"
#include <sys/resource.h>

#define CONNECTIONS 200

static int64_t processor_us(void) {
	struct rusage usage;
	must("getrusage", getrusage(RUSAGE_THREAD, &usage));
	return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000L + usage.ru_utime.tv_usec + usage.ru_stime.tv_usec;
}

/* Until each has been reported as ended. */
static void wait_for_ends(int set) {
	static bool ended[CONNECTIONS];
	struct epoll_event events[MOST];
	memset(ended, 0, sizeof ended);
	for (int left = CONNECTIONS; left > 0;) {
		int found = (int)must("epoll_wait", epoll_wait(set, events, MOST, ARRIVAL_MS));
		if (!found) {
			say("%d ends are missing", left);
			return;
		}
		for (int i = 0; i < found; i++) {
			uint64_t which = events[i].data.u64;
			if (which < CONNECTIONS && events[i].events & EPOLLRDHUP && !ended[which]) {
				ended[which] = true;
				left--;
			}
		}
	}
	say("all have ended");
}

static void run(uint32_t flags) {
	static int servers[CONNECTIONS], clients[CONNECTIONS];
	int set = new_set(), listener = new_listener(0, CONNECTIONS), pipes[2];
	char byte = 'p';
	must("pipe", pipe(pipes));
	for (int i = 0; i < CONNECTIONS; i++) {
		struct pair both = connect_pair(listener);
		servers[i] = both.server;
		send_all(both.client, &byte, 1);
		recv_all(both.server, &byte, 1);
		clients[i] = both.client;
		struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | flags, .data.u64 = (uint64_t)i};
		must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, servers[i], &event));
	}
	must("epoll_wait", epoll_wait(set, &(struct epoll_event){0}, 1, 0));
	for (int i = 0; i < CONNECTIONS; i++) close(clients[i]);
	wait_for_ends(set);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = CONNECTIONS};
	must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, pipes[0], &event));
	must("write", write(pipes[1], &byte, 1));
	bool seen = false;
	for (int turn = 0; turn < 2 * CONNECTIONS && !seen; turn++) {
		struct epoll_event events[MOST];
		int found = (int)must("epoll_wait", epoll_wait(set, events, MOST, ARRIVAL_MS));
		for (int i = 0; i < found; i++) seen |= events[i].data.u64 == CONNECTIONS;
	}
	say("the pipe is seen: %s", yes_no(seen));
	must("read", read(pipes[0], &byte, 1));
	if (flags & EPOLLET) {
		int64_t before = processor_us();
		show("nothing more", set, 500);
		say("it has slept: %s", yes_no(processor_us() - before < 250000));
	}
	for (int i = 0; i < CONNECTIONS; i++) close(servers[i]);
	close(pipes[0]);
	close(pipes[1]);
	close(listener);
	close(set);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	say("level-triggered");
	run(0);
	say("edge-triggered");
	run(EPOLLET);
	return 0;
}

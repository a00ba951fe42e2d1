/* fork while a thread waits in a set: the child has a set of its own, or waits in the parent's. It sees nothing there that is not the
 * program's, and takes nothing from the parent for good. */
#include "epoll.h"
#include <sys/wait.h>

#define ROUNDS 200

static int set, listener;
static struct pair both;

static void *echo(void *unused) {
	(void)unused;
	for (;;) {
		struct epoll_event events[MOST];
		int found = epoll_wait(set, events, MOST, -1);
		for (int i = 0; i < found; i++) {
			char byte;
			if (events[i].data.u64 == 'x') return NULL;
			if (events[i].data.u64 != 's') say("an event of nobody's");
			if (recv(both.server, &byte, 1, MSG_DONTWAIT) == 1) send_all(both.server, &byte, 1);
		}
	}
}

static void ask(const char *what) {
	int answers = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char byte = (char)round, back = 0;
		struct pollfd one = {.fd = both.client, .events = POLLIN};
		send_all(both.client, &byte, 1);
		if (must("poll", poll(&one, 1, 5000)) != 1) break;
		answers += recv(both.client, &back, 1, 0) == 1 && back == byte;
		usleep(300);
	}
	say("%s: %d answers", what, answers);
}

static void own_set(void) {
	int own = new_set(), client = new_socket(0);
	add(own, client, EPOLLIN, 'c');
	must("connect", connect_to(client, name_of(listener)));
	show("the child's set", own, ARRIVAL_MS);
	close(client);
	close(own);
	close(set);
	close(both.server);
	close(both.client);
}

static void wait_in_parents(int64_t until) {
	long foreign = 0;
	while (now_us() < until) {
		struct epoll_event event;
		foreign += epoll_wait(set, &event, 1, 20) > 0 && event.data.u64 != 's' && event.data.u64 != 'x';
	}
	say("the child has seen %ld events of nobody's", foreign);
}

/* Waits for the end of a child. */
static void ended(pid_t child) {
	int status;
	must("waitpid", waitpid(child, &status, 0));
	say("the child has ended: %d", status);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 8);
	both = connect_pair(listener);
	set = new_set();
	int end = (int)must("eventfd", eventfd(0, 0));
	add(set, both.server, EPOLLIN, 's');
	add(set, end, EPOLLIN, 'x');
	pthread_t thread = start_thread(echo, NULL);
	ask("before fork");
	pid_t child = (pid_t)must("fork", fork());
	if (child == 0) {
		own_set();
		_exit(0);
	}
	int server = (int)must("accept", accept(listener, NULL, NULL));
	send_all(server, "a", 1);
	ended(child);
	close(server);
	ask("after a child with its own set");
	int64_t until = now_us() + 1000000;
	child = (pid_t)must("fork", fork());
	if (child == 0) {
		wait_in_parents(until);
		_exit(0);
	}
	sleep_ms(50);
	ask("while a child waits in the set");
	ended(child);
	ask("after it");
	must("write", eventfd_write(end, 1));
	pthread_join(thread, NULL);
	return 0;
}

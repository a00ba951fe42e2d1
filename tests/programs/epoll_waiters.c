/* A thread waits in a set without end, while another looks into it without waiting, or for a millisecond: whichever of them takes an
 * announcement that is no event, what comes later reaches the one that sleeps. */
#include "epoll.h"
#include <stdatomic.h>

#define PAIRS 4
#define ROUNDS 600
#define PATIENCE_US 1000000

static int set;
static struct pair pairs[PAIRS];
static atomic_bool stop;
static uint32_t flags;
static int look_ms;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

static void serve(struct epoll_event *events, int found) {
	for (int i = 0; i < found; i++) {
		if (events[i].data.u64 >= PAIRS) continue;
		int fd = pairs[events[i].data.u64].server;
		char text[2];
		pthread_mutex_lock(&one);
		while (recv(fd, text, 2, MSG_DONTWAIT | MSG_PEEK) == 2) {
			recv_all(fd, text, 2);
			send_all(fd, text, 2);
		}
		pthread_mutex_unlock(&one);
	}
}

static void *wait_long(void *unused) {
	(void)unused;
	while (!stop) {
		struct epoll_event events[MOST];
		int found = epoll_wait(set, events, MOST, -1);
		if (found < 0) return (void *)1;
		serve(events, found);
	}
	return NULL;
}

/* The first of two bytes, which is no event. Its announcement is taken here, if the other thread does not. */
static void first_byte(int client, char byte) {
	send_all(client, &byte, 1);
	for (int64_t start = now_us(); now_us() - start < 100;) {
		struct epoll_event events[MOST];
		serve(events, (int)must("epoll_wait", epoll_wait(set, events, MOST, look_ms)));
	}
}

static void run(const char *what, uint32_t with, int ms) {
	flags = with;
	look_ms = ms;
	stop = false;
	set = new_set();
	int listener = new_listener(0, PAIRS), end = (int)must("eventfd", eventfd(0, 0));
	for (int i = 0; i < PAIRS; i++) {
		pairs[i] = connect_pair(listener);
		int two = 2, on = 1;
		/* The second byte does not wait for the first one's acknowledgement. */
		must("TCP_NODELAY", setsockopt(pairs[i].client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
		must("SO_RCVLOWAT", setsockopt(pairs[i].server, SOL_SOCKET, SO_RCVLOWAT, &two, sizeof two));
		struct epoll_event event = {.events = flags, .data.u64 = (uint64_t)i};
		must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, pairs[i].server, &event));
	}
	pthread_t thread = start_thread(wait_long, NULL);
	int answers = 0, late = 0;
	for (int round = 0; round < ROUNDS; round++) {
		int i = round % PAIRS;
		char byte = (char)round, back[2];
		/* The other thread goes to sleep. */
		usleep(round % 3 * 500);
		first_byte(pairs[i].client, byte);
		int64_t start = now_us();
		send_all(pairs[i].client, &byte, 1);
		struct pollfd answer = {.fd = pairs[i].client, .events = POLLIN};
		must("poll", poll(&answer, 1, 5000));
		if (!answer.revents) break;
		answers += recv(pairs[i].client, back, 2, 0) == 2 && back[0] == byte && back[1] == byte;
		late += now_us() - start > PATIENCE_US;
	}
	say("%s: %d answers, %d late", what, answers, late);
	stop = true;
	add(set, end, EPOLLIN, 'x');
	eventfd_write(end, 1);
	void *failed;
	pthread_join(thread, &failed);
	if (failed) say("%s: a wait has failed", what);
	for (int i = 0; i < PAIRS; i++) close_pair(pairs[i]);
	close(end);
	close(listener);
	close(set);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	run("level, looks", EPOLLIN, 0);
	run("edge, looks", EPOLLIN | EPOLLET, 0);
	run("level, waits a millisecond", EPOLLIN, 1);
	run("edge, waits a millisecond", EPOLLIN | EPOLLET, 1);
	return 0;
}

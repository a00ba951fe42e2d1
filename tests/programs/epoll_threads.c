/* Ten threads in one wait, edge-triggered and one-shot members: each event reaches one of them, and none is lost. */
#include "epoll.h"

#define THREADS 10
#define PAIRS 8
#define ROUNDS 200

static int set, stop_event;
static struct pair pairs[PAIRS];
static uint32_t flags;

static void *serve(void *unused) {
	(void)unused;
	for (;;) {
		struct epoll_event event;
		int found = epoll_wait(set, &event, 1, ARRIVAL_MS);
		if (found != 1) return (void *)1;
		if (event.data.u64 == 'x') return NULL;
		int fd = pairs[event.data.u64].server;
		char byte;
		/* Until there is no more: an edge comes once. */
		while (recv(fd, &byte, 1, MSG_DONTWAIT) == 1) send_all(fd, &byte, 1);
		if (flags & EPOLLONESHOT) {
			struct epoll_event next = {.events = flags, .data = event.data};
			must("EPOLL_CTL_MOD", epoll_ctl(set, EPOLL_CTL_MOD, fd, &next));
		}
	}
}

static void run(const char *what, uint32_t with) {
	flags = with;
	set = new_set();
	stop_event = (int)must("eventfd", eventfd(0, 0));
	int listener = new_listener(0, PAIRS);
	for (int i = 0; i < PAIRS; i++) {
		pairs[i] = connect_pair(listener);
		struct epoll_event event = {.events = flags, .data.u64 = (uint64_t)i};
		must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, pairs[i].server, &event));
	}
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) threads[i] = start_thread(serve, NULL);
	unsigned good = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char byte = (char)round, back = 0;
		for (int i = 0; i < PAIRS; i++) send_all(pairs[i].client, &byte, 1);
		for (int i = 0; i < PAIRS; i++) good += recv_all(pairs[i].client, &back, 1) == 1 && back == byte;
	}
	say("%s: %u of %u answers", what, good, PAIRS * ROUNDS);
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 'x'};
	must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, stop_event, &event));
	eventfd_write(stop_event, 1);
	unsigned failed = 0;
	for (int i = 0; i < THREADS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		failed += result != NULL;
	}
	say("%s: %u threads waited in vain", what, failed);
	for (int i = 0; i < PAIRS; i++) close_pair(pairs[i]);
	close(listener);
	close(set);
	close(stop_event);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	run("edge", EPOLLIN | EPOLLET);
	run("one shot", EPOLLIN | EPOLLONESHOT);
	run("edge, one shot", EPOLLIN | EPOLLET | EPOLLONESHOT);
	return 0;
}

/* Sets that are closed, or whose number gets another set by dup2, while threads wait in them and put an rsocket in: no thread ever sees an
 * event that is not the program's, whichever set its wait was in. */
#include "epoll.h"
#include <stdatomic.h>

#define RUN_US 1500000

static int set;
static atomic_bool stop;
static atomic_long foreign;

static void *wait_there(void *unused) {
	(void)unused;
	while (!stop) {
		struct epoll_event event;
		if (epoll_wait(set, &event, 1, 3) > 0 && event.data.u64 != 's' && event.data.u64 != 'p') foreign++;
	}
	return NULL;
}

/* The number may be no set for a moment. */
static void *put_in(void *member) {
	const struct pair *both = member;
	for (unsigned turn = 0; !stop; turn++) {
		control(set, EPOLL_CTL_ADD, both->server, EPOLLIN, 's');
		usleep(turn * 37 % 200);
		control(set, EPOLL_CTL_MOD, both->server, EPOLLIN | EPOLLET, 's');
		epoll_ctl(set, EPOLL_CTL_DEL, both->server, NULL);
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int ends[2];
	must("pipe", pipe(ends));
	must("write", write(ends[1], "z", 1));
	set = new_set();
	/* A number that no other descriptor gets: it is always a set, or none. */
	int number = (int)must("dup2", dup2(set, 200));
	close(set);
	set = number;
	pthread_t threads[] = {start_thread(wait_there, NULL), start_thread(wait_there, NULL), start_thread(put_in, &both),
			       start_thread(put_in, &both)};
	int64_t until = now_us() + RUN_US;
	for (unsigned turn = 0; now_us() < until; turn++) {
		int other = new_set();
		if (turn % 2) add(other, ends[0], EPOLLIN, 'p');
		if (turn % 3) close(number);
		must("dup2", dup2(other, number));
		close(other);
		if (turn % 4 == 0) usleep(200);
		if (turn % 16 == 0) send(both.client, "x", 1, MSG_DONTWAIT);
		if (turn % 64 == 0) {
			char text[64];
			recv(both.server, text, sizeof text, MSG_DONTWAIT);
		}
	}
	stop = true;
	for (size_t i = 0; i < COUNT(threads); i++) pthread_join(threads[i], NULL);
	say("events of nobody's: %ld", (long)foreign);
	int last = new_set();
	add(last, both.server, EPOLLIN, 's');
	send_all(both.client, "q", 1);
	show("another set", last, ARRIVAL_MS);
	close_pair(both);
	return 0;
}

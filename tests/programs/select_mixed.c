/* select(2) over sockets, a pipe and an eventfd; a count that leaves some out; ready ones only stay in the sets. */
#include "common.h"

static int listener, ends[2], event;
static struct pair both;

static void look(const char *what, bool wait) {
	fd_set reads, writes;
	int top = 0, all[] = {listener, both.client, both.server, ends[0], event};
	FD_ZERO(&reads);
	for (size_t i = 0; i < COUNT(all); i++) {
		FD_SET(all[i], &reads);
		if (all[i] >= top) top = all[i] + 1;
	}
	FD_ZERO(&writes);
	struct timeval none = {0};
	int ready = select(top, &reads, &writes, NULL, wait ? NULL : &none);
	say("%s: %d:%s%s%s%s%s", what, ready, FD_ISSET(listener, &reads) ? " listener" : "",
	    FD_ISSET(both.client, &reads) ? " client" : "", FD_ISSET(both.server, &reads) ? " server" : "",
	    FD_ISSET(ends[0], &reads) ? " pipe" : "", FD_ISSET(event, &reads) ? " eventfd" : "");
}

static void *write_pipe(void *context) {
	(void)context;
	sleep_ms(100);
	must("write", write(ends[1], "p", 1));
	return NULL;
}

static void *send_data(void *context) {
	(void)context;
	sleep_ms(100);
	send_all(both.client, "d", 1);
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 4);
	both = connect_pair(listener);
	must("pipe", pipe(ends));
	event = eventfd(0, 0);
	look("quiet", false);
	char byte;
	pthread_t thread = start_thread(write_pipe, NULL);
	look("woken by the pipe", true);
	pthread_join(thread, NULL);
	must("read", read(ends[0], &byte, 1));
	thread = start_thread(send_data, NULL);
	look("woken by data", true);
	pthread_join(thread, NULL);
	uint64_t one = 1;
	must("write", write(event, &one, sizeof one));
	look("data and eventfd", true);
	must("read", read(both.server, &byte, 1));
	int late = new_socket(0);
	must("connect", connect_to(late, name_of(listener)));
	wait_for(listener, POLLIN);
	look("listener and eventfd", true);

	fd_set reads;
	FD_ZERO(&reads);
	FD_SET(event, &reads);
	struct timeval none = {0};
	report("count that leaves it out", select(event, &reads, NULL, NULL, &none));
	int closed = dup(event);
	close(closed);
	FD_ZERO(&reads);
	FD_SET(closed, &reads);
	FD_SET(both.client, &reads);
	report("closed number in the set", select(closed + 1, &reads, NULL, NULL, &none));
	return 0;
}

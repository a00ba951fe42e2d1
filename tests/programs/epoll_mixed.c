/* B01: one set with a listener, connections, a pipe, an eventfd, a timerfd and a Unix socket pair, each made ready in turn. */
#include "epoll.h"
#include <sys/timerfd.h>

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8), set = new_set(), ends[2], unix_ends[2];
	struct pair both = connect_pair(listener);
	must("pipe", pipe(ends));
	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, unix_ends));
	int event = (int)must("eventfd", eventfd(0, 0)), timer = (int)must("timerfd", timerfd_create(CLOCK_MONOTONIC, 0));
	add(set, listener, EPOLLIN, 'l');
	add(set, both.server, EPOLLIN, 's');
	add(set, both.client, EPOLLIN, 'c');
	add(set, ends[0], EPOLLIN, 'p');
	add(set, unix_ends[0], EPOLLIN, 'u');
	add(set, event, EPOLLIN, 'e');
	add(set, timer, EPOLLIN, 't');
	show("nothing", set, 20);
	char text[8];
	for (int round = 0; round < 2; round++) {
		send_all(both.client, "a", 1);
		show("server's end", set, ARRIVAL_MS);
		recv_all(both.server, text, 1);
		send_all(both.server, "b", 1);
		show("client's end", set, ARRIVAL_MS);
		recv_all(both.client, text, 1);
		must("write", write(ends[1], "c", 1));
		show("pipe", set, ARRIVAL_MS);
		must("read", read(ends[0], text, 1));
		must("write", write(unix_ends[1], "d", 1));
		show("unix", set, ARRIVAL_MS);
		must("read", read(unix_ends[0], text, 1));
		must("write", eventfd_write(event, 1));
		show("eventfd", set, ARRIVAL_MS);
		eventfd_t value;
		must("read", eventfd_read(event, &value));
		struct itimerspec once = {.it_value.tv_nsec = 5000000};
		must("timerfd_settime", timerfd_settime(timer, 0, &once, NULL));
		show("timer", set, ARRIVAL_MS);
		must("read", read(timer, text, 8));
		int client = new_socket(0);
		must("connect", connect_to(client, name_of(listener)));
		show("listener", set, ARRIVAL_MS);
		int server = (int)must("accept", accept(listener, NULL, NULL));
		close(server);
		close(client);
		show("nothing", set, 0);
	}
	/* All of them. */
	send_all(both.client, "a", 1);
	send_all(both.server, "b", 1);
	wait_bytes(both.client, 1);
	wait_bytes(both.server, 1);
	must("write", write(ends[1], "c", 1));
	must("write", write(unix_ends[1], "d", 1));
	must("write", eventfd_write(event, 1));
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(listener)));
	wait_for(listener, POLLIN);
	show("all but the timer", set, 0);
	/* One at a time each gets its turn. */
	bool seen[128] = {false};
	struct epoll_event one;
	for (int i = 0; i < 2000; i++) {
		if (must("epoll_wait", epoll_wait(set, &one, 1, 0)) == 1) seen[one.data.u64] = true;
		usleep(50);
	}
	say("one at a time: l %s, s %s, c %s, p %s, u %s, e %s", yes_no(seen['l']), yes_no(seen['s']), yes_no(seen['c']), yes_no(seen['p']),
	    yes_no(seen['u']), yes_no(seen['e']));
	close_pair(both);
	return 0;
}

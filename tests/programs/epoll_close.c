/* B07: closing without EPOLL_CTL_DEL, duplicates of members and of the set. */
#include "epoll.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8), set = new_set();
	struct pair both = connect_pair(listener);
	char text[8];
	add(set, both.server, EPOLLIN, 's');
	send_all(both.client, "a", 1);
	wait_bytes(both.server, 1);
	int number = both.server;
	close(both.server);
	int again = new_socket(0);
	say("the number comes back: %s", yes_no(again == number));
	show("closed with data", set, 20);
	report("MOD of the new one", control(set, EPOLL_CTL_MOD, again, EPOLLIN, 'n'));
	report("DEL of the new one", epoll_ctl(set, EPOLL_CTL_DEL, again, NULL));
	close(again);
	close(both.client);

	both = connect_pair(listener);
	int copy = dup(set);
	add(set, both.server, EPOLLIN, 's');
	close(set);
	send_all(both.client, "a", 1);
	show("the set's duplicate", copy, ARRIVAL_MS);
	report("put in again", control(copy, EPOLL_CTL_ADD, both.server, EPOLLIN, 's'));
	set = fcntl(copy, F_DUPFD_CLOEXEC, 200);
	say("at 200: %s", yes_no(set == 200));
	dup2(set, copy);
	show("another one", copy, ARRIVAL_MS);
	close(copy);
	show("that", set, ARRIVAL_MS);

	/* A member lives until all numbers of its socket are closed. */
	int twin = dup(both.server);
	number = both.server;
	close(both.server);
	show("one number closed", set, 0);
	report("DEL of the closed number", epoll_ctl(set, EPOLL_CTL_DEL, number, NULL));
	report("DEL of the other", epoll_ctl(set, EPOLL_CTL_DEL, twin, NULL));
	add(set, twin, EPOLLIN | EPOLLOUT, 't');
	show("both are members", set, 0);
	recv_all(twin, text, 1);
	show("read", set, 0);
	dup2(twin, number);
	close(twin);
	show("under its old number", set, 0);
	modify(set, number, EPOLLOUT, 'S');
	show("changed", set, 0);
	close(number);
	show("all closed", set, 20);
	close(both.client);

	/* A duplicate is a member of its own. */
	both = connect_pair(listener);
	twin = dup(both.server);
	add(set, both.server, EPOLLIN, 's');
	add(set, twin, EPOLLIN, 't');
	send_all(both.client, "a", 1);
	wait_bytes(both.server, 1);
	show("both", set, ARRIVAL_MS);
	drop(set, both.server);
	show("one", set, ARRIVAL_MS);
	close(set);
	report("a closed set", epoll_wait(set, &(struct epoll_event){0}, 1, 0));
	close(twin);
	recv_all(both.server, text, 1);
	say("goes on: %.1s", text);
	close_pair(both);
	return 0;
}

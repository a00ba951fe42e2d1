/* Level-triggered members in each state of a stream: what is there is reported again and again. */
#include "epoll.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8), set = new_set();
	struct pair both = connect_pair(listener);
	add(set, both.server, EPOLLIN, 's');
	show("nothing sent", set, 0);
	show("nothing sent, 50 ms", set, 50);
	send_all(both.client, "abc", 3);
	show("data", set, ARRIVAL_MS);
	show("data, again", set, ARRIVAL_MS);
	char text[8];
	recv_all(both.server, text, 2);
	show("some read", set, 0);
	recv_all(both.server, text, 1);
	show("all read", set, 0);
	modify(set, both.server, EPOLLIN | EPOLLOUT, 'S');
	show("writable", set, 0);
	show("writable, again", set, 0);
	modify(set, both.server, EPOLLIN | EPOLLRDHUP, 's');
	must("shutdown", shutdown(both.client, SHUT_WR));
	wait_for(both.server, POLLRDHUP);
	show("peer's end", set, 0);
	modify(set, both.server, EPOLLOUT, 's');
	show("peer's end, asked for room", set, 0);
	modify(set, both.server, 0, 's');
	show("peer's end, asked for nothing", set, 0);
	must("shutdown", shutdown(both.server, SHUT_WR));
	wait_for(both.client, POLLHUP);
	wait_for(both.server, POLLHUP);
	show("both ended, asked for nothing", set, 0);
	show("again", set, 0);
	drop(set, both.server);
	show("taken out", set, 0);
	add(set, both.client, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 'c');
	show("the other end", set, 0);
	close(both.client);
	show("closed", set, 0);
	close(both.server);

	both = connect_pair(listener);
	add(set, both.server, EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLRDNORM | EPOLLWRNORM, 's');
	show("all asked for", set, 0);
	/* Unread data at close: the peer is reset; here the end alone is looked for, which is told in any case. */
	must("shutdown", shutdown(both.client, SHUT_WR));
	close(both.client);
	wait_for(both.server, POLLRDHUP);
	show("peer closed", set, 0);
	close(both.server);
	show("all closed", set, 0);

	add(set, listener, EPOLLIN, 'l');
	show("listener", set, 0);
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(listener)));
	show("listener, one waits", set, ARRIVAL_MS);
	show("listener, again", set, ARRIVAL_MS);
	int server = (int)must("accept", accept(listener, NULL, NULL));
	show("listener, taken", set, 0);
	close(server);
	close(client);
	return 0;
}

/* EPOLLONESHOT: one event, until EPOLL_CTL_MOD asks for the next. */
#include "epoll.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8), set = new_set();
	struct pair both = connect_pair(listener);
	char text[8];
	add(set, both.server, EPOLLIN | EPOLLONESHOT, 's');
	send_all(both.client, "abc", 3);
	show("data", set, ARRIVAL_MS);
	show("again", set, 20);
	send_all(both.client, "d", 1);
	wait_bytes(both.server, 4);
	show("more data", set, 20);
	report("put in again", control(set, EPOLL_CTL_ADD, both.server, EPOLLIN, 's'));
	modify(set, both.server, EPOLLIN | EPOLLONESHOT, 't');
	show("armed again", set, 0);
	recv_all(both.server, text, 4);
	modify(set, both.server, EPOLLIN | EPOLLONESHOT | EPOLLET, 's');
	show("armed, nothing there", set, 20);
	send_all(both.client, "e", 1);
	show("data", set, ARRIVAL_MS);
	show("again", set, 20);
	close(both.client);
	wait_for(both.server, POLLRDHUP);
	show("peer closed", set, 20);
	modify(set, both.server, EPOLLRDHUP | EPOLLONESHOT, 's');
	show("armed", set, 0);
	close(both.server);

	add(set, listener, EPOLLIN | EPOLLONESHOT, 'l');
	int one = new_socket(0), other = new_socket(0);
	must("connect", connect_to(one, name_of(listener)));
	show("listener", set, ARRIVAL_MS);
	must("connect", connect_to(other, name_of(listener)));
	show("another", set, 50);
	close(must("accept", accept(listener, NULL, NULL)));
	close(must("accept", accept(listener, NULL, NULL)));
	modify(set, listener, EPOLLIN | EPOLLONESHOT, 'l');
	show("taken, armed", set, 50);
	close(one);
	close(other);
	return 0;
}

/* B04: sets in sets, in poll and in select; cycles. */
#include "epoll.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int inner = new_set(), middle = new_set(), outer = new_set();
	char text[8];
	add(middle, inner, EPOLLIN, 'i');
	add(outer, middle, EPOLLIN, 'm');
	add(inner, both.server, EPOLLIN, 's');
	show("outer, nothing", outer, 20);
	send_all(both.client, "a", 1);
	show("outer, data", outer, ARRIVAL_MS);
	show("outer, again", outer, 0);
	show("middle", middle, 0);
	show("inner", inner, 0);
	say("poll of the inner: %s", event_names(events_now(inner, POLLIN | POLLOUT)));
	fd_set set;
	FD_ZERO(&set);
	FD_SET(outer, &set);
	FD_SET(inner, &set);
	struct timeval time = {0};
	report("select of both", select(outer + 1, &set, NULL, NULL, &time));
	recv_all(both.server, text, 1);
	show("outer, read", outer, 20);
	say("poll of the inner: %s", event_names(events_now(inner, POLLIN | POLLOUT)));
	struct pollfd one = {.fd = inner, .events = POLLIN};
	report("poll of the inner, 20 ms", poll(&one, 1, 20));
	send_all(both.client, "b", 1);
	report("poll of the inner, data", poll(&one, 1, ARRIVAL_MS));
	recv_all(both.server, text, 1);
	modify(inner, both.server, EPOLLIN | EPOLLOUT | EPOLLET, 's');
	show("outer, writable", outer, ARRIVAL_MS);
	show("inner", inner, 0);
	show("inner, again", inner, 0);
	show("outer, edge seen", outer, 20);
	report("a cycle", control(inner, EPOLL_CTL_ADD, outer, EPOLLIN, 'x'));
	report("itself", control(inner, EPOLL_CTL_ADD, inner, EPOLLIN, 'x'));
	drop(middle, inner);
	send_all(both.client, "c", 1);
	show("outer, parted", outer, 50);
	show("inner", inner, ARRIVAL_MS);
	/* An inner set that is put in while it has something. */
	modify(inner, both.server, EPOLLIN, 's');
	add(outer, inner, EPOLLIN, 'I');
	show("outer, put in ready", outer, ARRIVAL_MS);
	close(inner);
	show("outer, inner closed", outer, 20);
	close_pair(both);
	return 0;
}

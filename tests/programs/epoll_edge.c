/* EPOLLET: an event for each change, and none without. */
#include "epoll.h"

#define IN_OUT (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

static void fill(int fd) {
	static char block[65536];
	while (send(fd, block, sizeof block, MSG_DONTWAIT) > 0) {
	}
	say("full: %s", strerrorname_np(errno));
}

static void empty(int fd) {
	static char block[65536];
	/* What is on its way arrives while this reads: until nothing has come for a while. */
	for (int quiet = 0; quiet < 20;) {
		if (recv(fd, block, sizeof block, MSG_DONTWAIT) > 0)
			quiet = 0;
		else {
			quiet++;
			usleep(5000);
		}
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int set = new_set();
	char text[16];
	add(set, both.server, IN_OUT, 's');
	show("put in", set, 0);
	show("again", set, 0);
	send_all(both.client, "abc", 3);
	wait_bytes(both.server, 3);
	show("data", set, ARRIVAL_MS);
	show("again", set, 0);
	show("again, 20 ms", set, 20);
	send_all(both.client, "def", 3);
	wait_bytes(both.server, 6);
	show("more data, nothing read", set, ARRIVAL_MS);
	show("again", set, 0);
	recv_all(both.server, text, 4);
	show("some read", set, 0);
	recv_all(both.server, text, 2);
	show("all read", set, 0);
	modify(set, both.server, IN_OUT, 's');
	show("changed", set, 0);
	show("again", set, 0);
	send_all(both.client, "g", 1);
	wait_bytes(both.server, 1);
	recv_all(both.server, text, 1);
	show("came and was read", set, 0);
	show("again", set, 0);

	modify(set, both.server, EPOLLIN | EPOLLET, 's');
	swallow(set);
	send_all(both.client, "h", 1);
	wait_bytes(both.server, 1);
	recv_all(both.server, text, 1);
	show("came and was read, asked for data alone", set, 0);

	modify(set, both.server, EPOLLOUT | EPOLLET, 's');
	show("room", set, 0);
	send_all(both.client, "i", 1);
	wait_bytes(both.server, 1);
	show("data, not asked for", set, 20);
	recv_all(both.server, text, 1);
	set_nonblocking(both.server, true);
	fill(both.server);
	show("no room", set, 20);
	empty(both.client);
	show("room again", set, ARRIVAL_MS);
	show("again", set, 20);

	modify(set, both.server, IN_OUT, 's');
	swallow(set);
	must("shutdown", shutdown(both.client, SHUT_WR));
	wait_for(both.server, POLLRDHUP);
	show("end", set, ARRIVAL_MS);
	show("again", set, 20);
	close_pair(both);
	show("closed", set, 0);
	return 0;
}

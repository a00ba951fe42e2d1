/* tcp(7), TCP_USER_TIMEOUT: a peer that reads nothing ends a connection on which more is to be sent (the window is zero) after that time with
 * ETIMEDOUT; one that reads, or to which nothing is to be sent, does not. Case B35. */
#include "fill.h"

static void set(int fd, int ms) { must("TCP_USER_TIMEOUT", setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms)); }

static void ends(const char *what, int fd, int64_t since, int ms) {
	/* The kernel sets the error first, and throws away what waits to be sent before it ends both directions: a look may come between. */
	short events = wait_for(fd, POLLERR | POLLHUP | POLLRDHUP);
	say("%s: %s, not early: %s", what, event_names(events), yes_no(now_us() - since >= ms * 1000));
	report_socket_error(what, fd);
	report_socket_error("again", fd);
	char byte;
	report("recv", recv(fd, &byte, 1, 0));
	report("send", send(fd, "x", 1, MSG_NOSIGNAL));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair idle = new_pair(), both = new_pair();
	set(idle.client, 500);
	send_all(idle.client, "x", 1);

	set(both.client, 1000);
	int64_t start = now_us();
	fill(both.client);
	ends("nobody reads", both.client, start, 1000);
	close_pair(both);

	/* A call that is blocked meanwhile. */
	both = new_pair();
	set(both.client, 1000);
	fill(both.client);
	static char block[1 << 16];
	ssize_t sent;
	while ((sent = send(both.client, block, sizeof block, MSG_NOSIGNAL)) > 0) {}
	report("blocked send", sent);
	report("send afterwards", send(both.client, "x", 1, MSG_NOSIGNAL));
	close_pair(both);

	/* Somebody reads now and then. */
	both = new_pair();
	set(both.client, 1500);
	fill(both.client);
	for (int i = 0; i < 4; i++) {
		sleep_ms(700);
		drain(both.server);
		say("after a pause: %s", event_names(events_now(both.client, POLLIN | POLLRDHUP)));
		fill(both.client);
	}
	drain(both.server);
	close_pair(both);

	say("idle: %s", event_names(events_now(idle.client, ALL_EVENTS)));
	char byte;
	report("recv", recv(idle.server, &byte, 1, 0));
	report("send", send(idle.client, "y", 1, 0));
	report("recv", recv(idle.server, &byte, 1, 0));
	return 0;
}

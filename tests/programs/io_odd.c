/* recv(2) and send(2) asked for odd things: nothing at all, data without a place for them (MSG_TRUNC, tcp(7)), the queue of errors,
 * writing after the own or the peer's end. What such a call leaves behind is looked at with poll and a transfer. */
#include "common.h"

static char text[20000];

static void report_events(const char *what, int fd) { say("%s: %s", what, event_names(events_now(fd, ALL_EVENTS))); }

static void report_peer(const char *what, int fd) {
	struct address name = {.length = sizeof name.storage};
	report(what, getpeername(fd, sockaddr_of(&name), &name.length));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	int listener = new_listener(0, 8);
	struct pair both = connect_pair(listener);
	struct timeval soon = {.tv_usec = 2000};
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	report("nothing, DONTWAIT", recv(both.server, text, 0, MSG_DONTWAIT));
	report("nothing, DONTWAIT|TRUNC", recv(both.server, NULL, 0, MSG_DONTWAIT | MSG_TRUNC));
	report("nothing, until the time-out", recv(both.server, text, 0, 0));
	report("nothing, TRUNC, until the time-out", recv(both.server, NULL, 0, MSG_TRUNC));
	report("something, until the time-out", recv(both.server, text, 1, 0));
	soon = (struct timeval){.tv_sec = -1};
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	report("a negative time-out", recv(both.server, text, 1, 0));
	must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	report_descriptor("accept, a negative time-out", accept(listener, NULL, NULL));
	soon.tv_sec = 0;
	must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));

	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	report("ERRQUEUE", recv(both.server, text, 10, MSG_ERRQUEUE));
	memset(text, '.', 10);
	report("PEEK|TRUNC", recv(both.server, text, 4, MSG_PEEK | MSG_TRUNC));
	report("PEEK|TRUNC more than there is", recv(both.server, NULL, 20, MSG_PEEK | MSG_TRUNC));
	struct iovec nowhere[2] = {{NULL, 2}, {NULL, 1}};
	struct msghdr message = {.msg_iov = nowhere, .msg_iovlen = 2};
	report("recvmsg TRUNC", recvmsg(both.server, &message, MSG_TRUNC));
	say("untouched: %.4s", text);
	report("the rest", recv(both.server, text, 10, 0));
	say("%.7s", text);
	send_pattern(both.client, 20000, 20000, 1);
	wait_bytes(both.server, 20000);
	report("TRUNC much", recv(both.server, NULL, 9000, MSG_TRUNC));
	report("TRUNC|WAITALL much", recv(both.server, NULL, 9000, MSG_TRUNC | MSG_WAITALL));
	report("the rest", recv(both.server, text, 20000, MSG_DONTWAIT));
	say("equal: %s", yes_no(has_pattern(text, 2000, 18000, 1)));

	say("-- after the own end");
	must("shutdown", shutdown(both.client, SHUT_WR));
	wait_for(both.server, POLLRDHUP);
	struct iovec none = {NULL, 0};
	report("writev nothing", writev(both.client, &none, 1));
	report("writev no vectors", writev(both.client, NULL, 0));
	report("send nothing", send(both.client, text, 0, 0));
	report("send", send(both.client, text, 1, 0));
	report("send again", send(both.client, text, 1, 0));
	report_events("events", both.client);
	report("shutdown again", shutdown(both.client, SHUT_WR));
	send_all(both.server, "still here", 10);
	report("recv", recv(both.client, text, 10, MSG_WAITALL));
	report_peer("the peer", both.client);
	must("shutdown", shutdown(both.server, SHUT_WR));
	wait_for(both.client, POLLRDHUP | POLLHUP);
	report_events("events", both.client);
	report_peer("the peer of a connection that is over", both.client);
	report("shutdown RD", shutdown(both.client, SHUT_RD));
	report("recv nothing", recv(both.client, text, 0, MSG_DONTWAIT));
	close_pair(both);

	say("-- after the peer's end");
	both = connect_pair(listener);
	close(both.server);
	wait_for(both.client, POLLRDHUP);
	report("send nothing", send(both.client, text, 0, 0));
	report("send nothing again", send(both.client, text, 0, 0));
	report_events("events", both.client);
	close(both.client);
	return 0;
}

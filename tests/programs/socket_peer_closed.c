/* send(2): "EPIPE: the local end has been shut down on a connection oriented socket. In this case, the process will also
 * receive a SIGPIPE unless MSG_NOSIGNAL is set." The peer has closed: the first sends may still be taken. Case B35. */
#include "common.h"

static volatile sig_atomic_t pipes;

static void count_pipe(int number) {
	(void)number;
	pipes++;
}

static ssize_t by_send(int fd) { return send(fd, "x", 1, 0); }
static ssize_t by_send_nosignal(int fd) { return send(fd, "x", 1, MSG_NOSIGNAL); }
static ssize_t by_write(int fd) { return write(fd, "x", 1); }
static ssize_t by_writev(int fd) {
	struct iovec vector = {"x", 1};
	return writev(fd, &vector, 1);
}
static ssize_t by_sendmsg(int fd) {
	struct iovec vector = {"x", 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	return sendmsg(fd, &message, 0);
}
static ssize_t by_sendto(int fd) { return sendto(fd, "x", 1, MSG_NOSIGNAL, NULL, 0); }

static void until_error(const char *what, int fd, ssize_t (*transmit)(int)) {
	pipes = 0;
	ssize_t sent;
	do sleep_ms(5);
	while ((sent = transmit(fd)) > 0);
	report(what, sent);
	say("%s: SIGPIPE %d", what, (int)pipes);
	pipes = 0;
	report(what, transmit(fd));
	say("%s again: SIGPIPE %d", what, (int)pipes);
}

static void after_close(const char *what, ssize_t (*transmit)(int)) {
	struct pair both = new_pair();
	close(both.server);
	wait_for(both.client, POLLRDHUP);
	char byte;
	report("recv", recv(both.client, &byte, 1, 0));
	until_error(what, both.client, transmit);
	report("recv", recv(both.client, &byte, 1, 0));
	report_socket_error("left", both.client);
	say("events: %s", event_names(events_now(both.client, ALL_EVENTS)));
	report("shutdown", shutdown(both.client, SHUT_RDWR));
	report("close", close(both.client));
}

static void after_own_shutdown(void) {
	struct pair both = new_pair();
	must("shutdown", shutdown(both.client, SHUT_WR));
	until_error("own SHUT_WR, send", both.client, by_send);
	until_error("own SHUT_WR, send NOSIGNAL", both.client, by_send_nosignal);
	until_error("own SHUT_WR, write", both.client, by_write);
	pipes = 0;
	report("own SHUT_WR, send of nothing", send(both.client, "", 0, 0));
	report("own SHUT_WR, write of nothing", write(both.client, "", 0));
	close_pair(both);
}

static void pending_data_first(void) {
	struct pair both = new_pair();
	send_all(both.server, "last words", 10);
	close(both.server);
	wait_for(both.client, POLLRDHUP);
	char text[32];
	report("data before the close", recv(both.client, text, 4, 0));
	report("the rest", recv(both.client, text, sizeof text, 0));
	report("end", recv(both.client, text, sizeof text, 0));
	close(both.client);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	signal(SIGPIPE, count_pipe);
	after_close("send", by_send);
	after_close("send NOSIGNAL", by_send_nosignal);
	after_close("write", by_write);
	after_close("writev", by_writev);
	after_close("sendmsg", by_sendmsg);
	after_close("sendto", by_sendto);
	after_own_shutdown();
	pending_data_first();
	signal(SIGPIPE, SIG_IGN);
	after_close("SIGPIPE ignored, write", by_write);
	return 0;
}

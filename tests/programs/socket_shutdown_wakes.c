/* shutdown(2) by another thread ends what sleeps on the socket: recv and accept, send, poll and select. Cases B35, B38. */
#include "fill.h"

static struct pair both;
static int listener, how, victim;

static void *shut(void *unused) {
	sleep_ms(100);
	if (shutdown(victim, how) < 0) say("shutdown: %s", strerrorname_np(errno));
	return unused;
}

static void during(const char *what, int fd, int with, long (*wait)(void)) {
	victim = fd;
	how = with;
	int64_t start = now_us();
	pthread_t thread = start_thread(shut, NULL);
	long result = wait();
	int error = errno;
	pthread_join(thread, NULL);
	say("%s: %ld %s, at once: %s", what, result, result < 0 ? strerrorname_np(error) : "", yes_no(now_us() - start < 10000000));
}

static char byte;
static long in_recv(void) { return recv(both.server, &byte, 1, 0); }
static long in_recv_all(void) {
	char text[10];
	return recv(both.server, text, sizeof text, MSG_WAITALL);
}
static long in_send(void) { return send(both.client, &byte, 1, MSG_NOSIGNAL); }
static long in_poll(void) {
	struct pollfd one = {.fd = both.server, .events = ALL_EVENTS & ~POLLOUT};
	long result = poll(&one, 1, ARRIVAL_MS);
	say("  %s", event_names(one.revents));
	return result;
}
static long in_poll_out(void) {
	struct pollfd one = {.fd = both.client, .events = POLLOUT};
	long result = poll(&one, 1, ARRIVAL_MS);
	say("  %s", event_names(one.revents));
	return result;
}
static long in_select(void) {
	fd_set set;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	return select(both.server + 1, &set, NULL, NULL, NULL);
}
static long in_accept(void) { return accept(listener, NULL, NULL); }
static long in_poll_listener(void) {
	struct pollfd one = {.fd = listener, .events = POLLIN};
	long result = poll(&one, 1, ARRIVAL_MS);
	say("  %s", event_names(one.revents));
	return result;
}

static void on_pair(const char *what, bool server, int with, long (*wait)(void), bool full) {
	both = new_pair();
	send_all(both.server, "x", 1);
	recv_all(both.client, &byte, 1);
	if (full) fill(both.client);
	during(what, server ? both.server : both.client, with, wait);
	close_pair(both);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	on_pair("recv, SHUT_RD", true, SHUT_RD, in_recv, false);
	on_pair("recv, SHUT_RDWR", true, SHUT_RDWR, in_recv, false);
	on_pair("recv, SHUT_WR of the peer", false, SHUT_WR, in_recv, false);
	on_pair("recv MSG_WAITALL, SHUT_RD", true, SHUT_RD, in_recv_all, false);
	on_pair("poll, SHUT_RD", true, SHUT_RD, in_poll, false);
	on_pair("poll, SHUT_RDWR", true, SHUT_RDWR, in_poll, false);
	on_pair("poll, SHUT_WR of the peer", false, SHUT_WR, in_poll, false);
	on_pair("select, SHUT_RD", true, SHUT_RD, in_select, false);
	on_pair("select, SHUT_RDWR of the peer", false, SHUT_RDWR, in_select, false);
	on_pair("send, SHUT_WR", false, SHUT_WR, in_send, true);
	on_pair("send, SHUT_RDWR", false, SHUT_RDWR, in_send, true);
	on_pair("poll for room, SHUT_WR", false, SHUT_WR, in_poll_out, true);
	listener = new_listener(0, 4);
	during("accept, SHUT_RD", listener, SHUT_RD, in_accept);
	close(listener);
	listener = new_listener(0, 4);
	during("accept, SHUT_RDWR", listener, SHUT_RDWR, in_accept);
	close(listener);
	listener = new_listener(0, 4);
	during("poll of a listener, SHUT_RDWR", listener, SHUT_RDWR, in_poll_listener);
	close(listener);
	return 0;
}

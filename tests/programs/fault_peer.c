/* One end of a connection whose other end fails (recv(2), send(2), poll(2): what a peer's death looks like). Cases B35, B36.
 *
 * fault_peer listen|connect BEHAVIOUR ADDRESS PORT
 * Both ends exchange a byte first and print "ready". Then, by BEHAVIOUR:
 *   recv, send, poll, select, pollout   wait in that call for the peer's end, print what it was, exit 0
 *   later                               wait for SIGUSR1, reading nothing before, then the same as recv
 *   keep                                the same as recv, with SO_KEEPALIVE, for a peer that does not answer any more
 *   close                               fill the connection, then close it; prints whether that took less than a second
 *   closing                             the same, then stay: for an end that fails while the library sends the rest
 *   idle, flood, drain                  for the end that fails: do nothing, send for ever, read for ever
 *   pump MIB, sink MIB                  send or receive so much of the pattern, and print whether it was whole, or the error */
#include "common.h"

static char block[65536];

static int bound_socket(struct address where, bool listens) {
	int fd = new_socket(0), on = 1;
	if (!listens) {
		must("connect", connect_to(fd, where));
		return fd;
	}
	must("SO_REUSEADDR", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("bind", bind_to(fd, where));
	must("listen", listen(fd, 4));
	int accepted = (int)must("accept", accept(fd, NULL, NULL));
	close(fd);
	return accepted;
}

static void end(const char *call, ssize_t result) {
	say("%s ended with %s", call, result == 0 ? "end of file" : strerrorname_np(errno));
	bool right = result == 0 || errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT;
	exit(right ? 0 : 1);
}

static void read_until_end(int fd, const char *call) {
	ssize_t got;
	while ((got = recv(fd, block, sizeof block, 0)) > 0) {}
	end(call, got);
}

/* tcp(7): TCP_KEEPIDLE, "The time (in seconds) the connection needs to remain idle before TCP starts sending keepalive probes". */
static void keep_until_end(int fd) {
	int on = 1, seconds = 1;
	must("SO_KEEPALIVE", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
	must("TCP_KEEPIDLE", setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof seconds));
	read_until_end(fd, "keep");
}

static void send_until_end(int fd, const char *call) {
	ssize_t sent;
	while ((sent = send(fd, block, sizeof block, MSG_NOSIGNAL)) > 0) {}
	end(call, sent);
}

static void poll_until_end(int fd) {
	for (;;) {
		struct pollfd one = {.fd = fd, .events = POLLIN};
		must("poll", poll(&one, 1, -1));
		ssize_t got = recv(fd, block, sizeof block, MSG_DONTWAIT);
		if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
		int error = errno;
		say("poll says %s", one.revents & POLLIN ? "IN" : "no IN");
		errno = error;
		end("poll, recv", got);
	}
}

static sigset_t told; /* SIGUSR1 */

static void read_when_told(int fd) {
	int number;
	errno = sigwait(&told, &number);
	if (errno) die("sigwait");
	read_until_end(fd, "later, recv");
}

static void select_until_end(int fd) {
	for (;;) {
		fd_set reads;
		FD_ZERO(&reads);
		FD_SET(fd, &reads);
		must("select", select(fd + 1, &reads, NULL, NULL, NULL));
		ssize_t got = recv(fd, block, sizeof block, MSG_DONTWAIT);
		if (got > 0 || (got < 0 && errno == EAGAIN)) continue;
		end("select, recv", got);
	}
}

static void fill(int fd) {
	for (int quiet = 0; quiet < 5; quiet++) {
		while (send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) quiet = 0;
		sleep_ms(20);
	}
}

static void pollout_until_end(int fd) {
	for (;;) {
		struct pollfd one = {.fd = fd, .events = POLLOUT};
		must("poll", poll(&one, 1, -1));
		ssize_t sent = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent < 0 && errno != EAGAIN) end("poll, send", sent);
	}
}

static void close_full(int fd) {
	fill(fd);
	say("full");
	sleep_ms(1000); /* the script stops the peer meanwhile */
	int64_t start = now_us();
	report("close", close(fd));
	say("close was quick: %s", yes_no(now_us() - start < 1000000));
}

int main(int argc, char **argv) {
	if (argc < 5) {
		fprintf(stderr, "fault_peer listen|connect BEHAVIOUR ADDRESS PORT [MIB]\n");
		return 2;
	}
	const char *how = argv[2];
	sigemptyset(&told);
	sigaddset(&told, SIGUSR1);
	sigprocmask(SIG_BLOCK, &told, NULL);
	begin(argc - 2, argv + 2);
	alarm(600);
	struct address where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 0));
	uint64_t total = (uint64_t)argument(2, 1) << 20;
	int fd = bound_socket(where, !strcmp(argv[1], "listen"));
	char byte = 'r';
	send_all(fd, &byte, 1);
	if (recv_all(fd, &byte, 1) != 1) die("first byte");
	say("ready");

	if (!strcmp(how, "recv")) read_until_end(fd, "recv");
	if (!strcmp(how, "keep")) keep_until_end(fd);
	if (!strcmp(how, "send")) send_until_end(fd, "send");
	if (!strcmp(how, "poll")) poll_until_end(fd);
	if (!strcmp(how, "select")) select_until_end(fd);
	if (!strcmp(how, "later")) read_when_told(fd);
	if (!strcmp(how, "pollout")) fill(fd), pollout_until_end(fd);
	if (!strcmp(how, "close")) close_full(fd);
	if (!strcmp(how, "closing")) close_full(fd), sleep(600);
	if (!strcmp(how, "flood")) send_until_end(fd, "flood");
	if (!strcmp(how, "drain")) read_until_end(fd, "drain");
	if (!strcmp(how, "idle")) sleep(600);
	if (!strcmp(how, "pump")) {
		send_pattern(fd, total, 65536, 3);
		must("shutdown", shutdown(fd, SHUT_WR));
		end("pump", recv(fd, &byte, 1, 0));
	}
	if (!strcmp(how, "sink")) {
		uint64_t got = recv_pattern(fd, total, 65536, 3);
		say("sink: %s", got == total ? "whole" : "cut short");
		return got == total ? 0 : 1;
	}
	return 0;
}

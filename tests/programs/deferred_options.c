/* Options that were set before the first call on a connection are in effect after it, and those that are set later: socket(7), tcp(7).
 * SO_RCVTIMEO, SO_SNDTIMEO, SO_RCVLOWAT, SO_LINGER, SO_KEEPALIVE, TCP_NODELAY, TCP_CORK, SO_RCVBUF, and what a listener hands on. */
#include "deferred.h"

static int over[2]; /* the end under test tells its peer that it has done */

static const struct {
	const char *name;
	int level, option, value;
} numbers[] = {
    {"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1},     {"SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 3},
    {"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF, 60000},       {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF, 50000},
    {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1},     {"SO_PRIORITY", SOL_SOCKET, SO_PRIORITY, 3},
    {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1},      {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 77},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 33}, {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 4},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 5000},
};

static void set_number(int fd, size_t which) {
	must(numbers[which].name, setsockopt(fd, numbers[which].level, numbers[which].option, &numbers[which].value, sizeof(int)));
}

static void show_numbers(const char *when, int fd) {
	printf("%s:", when);
	for (size_t i = 0; i < COUNT(numbers); i++) {
		int value = -1;
		socklen_t length = sizeof value;
		must(numbers[i].name, getsockopt(fd, numbers[i].level, numbers[i].option, &value, &length));
		printf(" %s %d", numbers[i].name, value);
	}
	struct timeval limits[2];
	struct linger linger;
	socklen_t length = sizeof limits[0];
	must("SO_RCVTIMEO", getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limits[0], &length));
	must("SO_SNDTIMEO", getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limits[1], &length));
	length = sizeof linger;
	must("SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
	say(" limits %ld.%06ld %ld.%06ld linger %d %d", (long)limits[0].tv_sec, (long)limits[0].tv_usec, (long)limits[1].tv_sec,
	    (long)limits[1].tv_usec, linger.l_onoff, linger.l_linger);
}

static void set_all(int fd) {
	struct timeval receive = {0, 80000}, send = {0, 120000};
	struct linger linger = {1, 7};
	for (size_t i = 0; i < COUNT(numbers); i++) set_number(fd, i);
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &receive, sizeof receive));
	must("SO_SNDTIMEO", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &send, sizeof send));
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
}

/* After the first call: SO_RCVTIMEO ends a recv, SO_RCVLOWAT lets poll wait, SO_SNDTIMEO ends a send that finds no room. */
static void show_effects(int fd) {
	char block[4];
	int64_t start = now_us();
	report("SO_RCVTIMEO", recv(fd, block, sizeof block, 0));
	report_not_early("SO_RCVTIMEO", start, 80);
	send_all(fd, "2", 1);
	struct pollfd one = {.fd = fd, .events = POLLIN};
	report("SO_RCVLOWAT 3, two bytes", poll(&one, 1, 100));
	send_all(fd, "1", 1);
	report("and a third", poll(&one, 1, ARRIVAL_MS));
	report("recv", recv(fd, block, sizeof block, 0));
	static char much[1 << 22];
	start = now_us();
	ssize_t sent = send(fd, much, sizeof much, MSG_NOSIGNAL);
	say("SO_SNDTIMEO: a part: %s", yes_no(sent > 0 && sent < (ssize_t)sizeof much));
	start = now_us();
	do sent = send(fd, much, sizeof much, MSG_NOSIGNAL);
	while (sent > 0 && (start = now_us()));
	report("SO_SNDTIMEO", sent);
	report_not_early("SO_SNDTIMEO", start, 120);
}

static void tested(int fd, long before) {
	char byte;
	ssize_t got;
	if (before) set_all(fd);
	/* a busy peer may be later than SO_RCVTIMEO */
	while ((got = recv(fd, &byte, 1, MSG_WAITALL)) < 0 && errno == EAGAIN) {
	}
	report("the first call", got);
	if (!before) set_all(fd);
	show_numbers("after it", fd);
	show_effects(fd);
	struct linger none = {0, 0};
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none));
	must("write", write(over[1], "o", 1));
}

/* Sends one byte; for each byte that comes so many as it says; then reads nothing until the other has done. */
static void peer(int fd, long unused) {
	(void)unused;
	char count, word;
	send_all(fd, "0", 1);
	for (int i = 0; i < 2 && recv_all(fd, &count, 1); i++) send_all(fd, "abc", (size_t)(count - '0'));
	must("read", read(over[0], &word, 1));
}

/* What the listener had is the accepted socket's, before and after its first call. */
static void inherited(void) {
	struct server made;
	int listener = new_listener(0, 4);
	for (size_t i = 0; i < COUNT(numbers); i++) set_number(listener, i);
	made.address = name_of(listener);
	if (begin_child(&made.child)) {
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		close(listener);
		show_numbers("before", fd);
		char block[3];
		report("the first call", recv(fd, block, 3, 0));
		show_numbers("after it", fd);
		end_child();
	}
	close(listener);
	int fd = connect_to_server(&made);
	send_all(fd, "abc", 3);
	wait_for(fd, POLLRDHUP);
	close(fd);
	finish_child("server", made.child);
}

/* SO_LINGER with no time: the other end is reset. */
static void reset_by(int fd, long before) {
	struct linger now = {1, 0};
	char byte;
	if (before) must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
	report("the first call", recv(fd, &byte, 1, 0));
	if (!before) must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
}

static void is_reset(int fd, long unused) {
	(void)unused;
	char byte;
	send_all(fd, "x", 1);
	report("reset", recv(fd, &byte, 1, 0));
	report("then", recv(fd, &byte, 1, 0));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	must("pipe", pipe(over));
	for (enum style style = OWN; style < STYLES; style++)
		for (long before = 1; before >= 0; before--) {
			const char *when = before ? "before" : "after";
			say("%s: the server's, set %s", style_names[style], when);
			talk(style, tested, peer, before);
			say("%s: the client's, set %s", style_names[style], when);
			talk(style, peer, tested, before);
			say("%s: the server resets, set %s", style_names[style], when);
			talk(style, reset_by, is_reset, before);
			say("%s: the client resets, set %s", style_names[style], when);
			talk(style, is_reset, reset_by, before);
		}
	inherited();
	return 0;
}

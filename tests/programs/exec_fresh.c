/* Sockets that are not connected yet, and what was set on them, in the program that comes by exec: it connects one, listens on another one that
 * was bound before, and finds on a third one that listened before what accepted sockets have of it. execve(2): "By default, file descriptors
 * remain open across an execve()".
 *
 * exec_fresh ADDRESS: becomes "exec_fresh ADDRESS go FRESH BOUND LISTENER". */
#include "common.h"

enum { BYTES = 100000 };

static void set(int fd, int level, int name, int value) { must("setsockopt", setsockopt(fd, level, name, &value, sizeof value)); }

static int get(int fd, int level, int name) {
	int value = -1;
	socklen_t length = sizeof value;
	must("getsockopt", getsockopt(fd, level, name, &value, &length));
	return value;
}

static void show(const char *who, int fd) {
	say("%s: NODELAY %s, KEEPALIVE %s, KEEPIDLE %d, KEEPCNT %d, USER_TIMEOUT %d, RCVLOWAT %d, RCVBUF %d", who,
	    yes_no(get(fd, IPPROTO_TCP, TCP_NODELAY)), yes_no(get(fd, SOL_SOCKET, SO_KEEPALIVE)), get(fd, IPPROTO_TCP, TCP_KEEPIDLE),
	    get(fd, IPPROTO_TCP, TCP_KEEPCNT), get(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), get(fd, SOL_SOCKET, SO_RCVLOWAT),
	    get(fd, SOL_SOCKET, SO_RCVBUF));
	struct linger linger;
	struct timeval time;
	socklen_t length = sizeof linger;
	must("SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
	length = sizeof time;
	must("SO_RCVTIMEO", getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
	say("%s: LINGER %d %d, RCVTIMEO %ld ms, blocks %s, close on exec %s", who, linger.l_onoff, linger.l_linger,
	    (long)time.tv_sec * 1000 + time.tv_usec / 1000, yes_no(!is_nonblocking(fd)), yes_no(is_cloexec(fd)));
}

static void setup(int fd) {
	set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
	set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(fd, IPPROTO_TCP, TCP_KEEPIDLE, 77);
	set(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
	set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 60000);
	set(fd, SOL_SOCKET, SO_RCVLOWAT, 5);
	set(fd, SOL_SOCKET, SO_RCVBUF, 50000);
	struct linger linger = {.l_onoff = 1, .l_linger = 4};
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	struct timeval time = {.tv_usec = 80000};
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
}

static void *sends(void *context) {
	send_pattern(*(int *)context, BYTES, 3000, 9);
	return NULL;
}

static void talk(const char *what, struct pair both) {
	pthread_t thread = start_thread(sends, &both.client);
	say("%s: received %s", what, recv_pattern(both.server, BYTES, 4000, 9) == BYTES ? "all" : "less");
	pthread_join(thread, NULL);
}

/* Of what was set, what works: fewer bytes than SO_RCVLOWAT make no event, and a read waits no longer than SO_RCVTIMEO. */
static void works(const char *what, struct pair both) {
	char bytes[8];
	send_all(both.client, "four", 4);
	wait_bytes(both.server, 4);
	say("%s: events with four bytes: %s", what, event_names(events_now(both.server, POLLIN)));
	send_all(both.client, "!", 1);
	say("%s: with one more: %s", what, event_names(wait_for(both.server, POLLIN) & POLLIN));
	say("%s: %zu bytes", what, recv_all(both.server, bytes, 5));
	int64_t start = now_us();
	report("  a read in vain", recv(both.server, bytes, 1, 0));
	report_not_early("  it", start, 80);
}

static void go(int fresh, int bound, int listening) {
	show("fresh", fresh);
	must("listen", listen(bound, 8));
	must("connect", connect_to(fresh, name_of(bound)));
	struct pair both = {.client = fresh, .server = (int)must("accept", accept(bound, NULL, NULL))};
	talk("the one that was not bound, and the one that was", both);
	close_pair(both);

	/* The first look makes it a listener over the fabric as well. */
	report_descriptor("accept in vain", accept(listening, NULL, NULL));
	both = (struct pair){.client = new_socket(0)};
	must("connect", connect_to(both.client, name_of(listening)));
	must("poll", poll(&(struct pollfd){.fd = listening, .events = POLLIN}, 1, ARRIVAL_MS));
	both.server = (int)must("accept", accept(listening, NULL, NULL));
	show("listener", listening);
	show("accepted", both.server);
	talk("the one that listened", both);
	works("accepted", both);
	close_pair(both);
	report("listen once more", listen(listening, 3));
	report("shutdown", shutdown(listening, SHUT_RD));
	report("close", close(listening));
	report("close again", close(listening));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 5 && !strcmp(argv[2], "go")) return go((int)argument(2, -1), (int)argument(3, -1), (int)argument(4, -1)), 0;

	int all[3];
	for (int i = 0; i < 3; i++) {
		all[i] = new_socket(0);
		if (i) must("bind", bind_to(all[i], local));
	}
	setup(all[2]);
	set(all[0], IPPROTO_TCP, TCP_NODELAY, 1);
	must("listen", listen(all[2], 8));
	set_nonblocking(all[2], true);
	char numbers[3][16];
	for (int i = 0; i < 3; i++) snprintf(numbers[i], sizeof numbers[i], "%d", all[i]);
	execl("/proc/self/exe", argv[0], argc > 1 ? argv[1] : "127.0.0.1", "go", numbers[0], numbers[1], numbers[2], (char *)NULL);
	die("execl");
}

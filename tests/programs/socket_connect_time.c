/* connect(2), socket(7): a connect that takes long: EINPROGRESS when SO_SNDTIMEO is over, EINTR after a signal whose handler does not
 * restart; EALREADY meanwhile; then it succeeds once somebody accepts, and says so once. */
#include "common.h"

static volatile sig_atomic_t handled;
static void handler(int number) {
	(void)number;
	handled++;
}

enum { MOST = 16 };
static int waiting[MOST], waiting_count;

/* A listener that answers nobody: its queue is full. */
static int busy_listener(void) {
	int listener = new_listener(0, 0);
	for (waiting_count = 0; waiting_count < MOST; waiting_count++) {
		int fd = waiting[waiting_count] = new_socket(SOCK_NONBLOCK);
		if (connect_to(fd, name_of(listener)) < 0 && errno != EINPROGRESS) die("connect");
		struct pollfd one = {.fd = fd, .events = POLLOUT};
		if (must("poll", poll(&one, 1, 300)) == 0) {
			waiting_count++;
			return listener;
		}
	}
	die("a full queue");
	return -1;
}

static int accepted[MOST + 4], accepted_count;

static void accept_all(int listener) {
	set_nonblocking(listener, true);
	int fd;
	while (accepted_count < MOST + 4 && (fd = accept(listener, NULL, NULL)) >= 0) accepted[accepted_count++] = fd;
}

static void succeeds(const char *what, int fd, int listener) {
	struct pollfd one = {.fd = fd, .events = POLLOUT};
	for (int tries = 0; tries < 200 && poll(&one, 1, 100) == 0; tries++) accept_all(listener);
	say("%s: %s", what, event_names(one.revents));
	report_socket_error(what, fd);
	report("connect again", connect_to(fd, name_of(listener)));
	report("and again", connect_to(fd, name_of(listener)));
}

static void finish(int fd, int listener) {
	close(fd);
	close(listener);
	while (waiting_count) close(waiting[--waiting_count]);
	while (accepted_count) close(accepted[--accepted_count]);
}

static void with_time_limit(void) {
	int listener = busy_listener(), fd = new_socket(0);
	struct timeval limit = {.tv_usec = 300000};
	must("SO_SNDTIMEO", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	int64_t start = now_us();
	report("connect with SO_SNDTIMEO", connect_to(fd, name_of(listener)));
	report_not_early("connect", start, 300);
	report_socket_error("meanwhile", fd);
	say("meanwhile: %s", event_names(events_now(fd, ALL_EVENTS)));
	struct address peer = {.length = sizeof peer.storage};
	report("getpeername", getpeername(fd, sockaddr_of(&peer), &peer.length));
	report("bind", bind_to(fd, local));
	report("listen", listen(fd, 1));
	set_nonblocking(fd, true);
	report("connect again, nonblocking", connect_to(fd, name_of(listener)));
	char byte;
	report("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
	report("send", send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL));
	accept_all(listener);
	succeeds("later", fd, listener);
	finish(fd, listener);
}

static void with_signal(bool restart) {
	int listener = busy_listener(), fd = new_socket(0);
	struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
	sigaction(SIGALRM, &action, NULL);
	handled = 0;
	struct itimerval soon = {.it_value = {.tv_usec = 300000}};
	struct timeval limit = {.tv_sec = restart ? 20 : 0};
	must("SO_SNDTIMEO", setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit));
	setitimer(ITIMER_REAL, &soon, NULL);
	say("connect, %s", restart ? "restart and SO_SNDTIMEO" : "no restart");
	report("connect", connect_to(fd, name_of(listener)));
	say("handled %d", (int)handled);
	signal(SIGALRM, SIG_DFL);
	alarm(WATCHDOG_SECONDS);
	set_nonblocking(fd, true);
	report("connect again, nonblocking", connect_to(fd, name_of(listener)));
	accept_all(listener);
	succeeds("later", fd, listener);
	finish(fd, listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	with_time_limit();
	with_signal(false);
	with_signal(true);
	return 0;
}

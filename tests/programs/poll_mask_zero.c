/* ppoll(2), pselect(2): a signal that waits and that the mask lets through ends the call at once with EINTR, also where nothing is waited
 * for; what is ready goes before it, and then the signal goes on waiting. Case B39. */
#include "common.h"

static volatile sig_atomic_t handled;
static void handler(int number) {
	(void)number;
	handled++;
}

static int fd;
static sigset_t open_mask;

static void poll_once(const char *what, short events, const struct timespec *limit) {
	struct pollfd one = {.fd = fd, .events = events, .revents = 0};
	handled = 0;
	raise(SIGUSR1); /* blocked: it waits */
	int result = ppoll(&one, 1, limit, &open_mask), error = errno;
	sigset_t pending;
	sigpending(&pending);
	say("ppoll, %s: %d %s, events %s, handled %d, still waits: %s", what, result, result < 0 ? strerrorname_np(error) : "",
	    result < 0 ? "" : event_names(one.revents), (int)handled, yes_no(sigismember(&pending, SIGUSR1)));
}

static void select_once(const char *what, bool write, const struct timespec *limit) {
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	handled = 0;
	raise(SIGUSR1);
	int result = pselect(fd + 1, write ? NULL : &set, write ? &set : NULL, NULL, limit, &open_mask), error = errno;
	say("pselect, %s: %d %s, handled %d, set still: %s", what, result, result < 0 ? strerrorname_np(error) : "", (int)handled,
	    yes_no(FD_ISSET(fd, &set)));
}

static void all_of(const char *what, int of) {
	struct timespec none = {0, 0}, one_ns = {0, 1}, long_time = {30, 0};
	fd = of;
	say("%s", what);
	poll_once("nothing, no time", POLLIN, &none);
	poll_once("nothing, 1 ns", POLLIN, &one_ns);
	poll_once("nothing, a long time", POLLIN, &long_time);
	poll_once("nothing, for ever", POLLIN, NULL);
	poll_once("no events, no time", 0, &none);
	select_once("nothing, no time", false, &none);
	select_once("nothing, a long time", false, &long_time);
	select_once("nothing, for ever", false, NULL);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	sigset_t blocked;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigprocmask(SIG_BLOCK, &blocked, &open_mask);
	sigdelset(&open_mask, SIGUSR1);
	int listener = new_listener(0, 4);
	struct pair both = connect_pair(listener);
	all_of("a listener", listener);
	all_of("a connection", both.server);
	poll_once("writable", POLLOUT, NULL);
	select_once("writable", true, NULL);
	send_all(both.client, "x", 1);
	wait_for(both.server, POLLIN);
	struct timespec none = {0, 0};
	poll_once("readable, no time", POLLIN, &none);
	select_once("readable, no time", false, &none);
	return 0;
}

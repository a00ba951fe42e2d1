/* ppoll(2), pselect(2): the mask is in force for the wait only, and atomically: a blocked signal that is pending ends the
 * wait at once with EINTR; one that the mask blocks is delivered afterwards; the old mask is back. */
#include "common.h"

static volatile sig_atomic_t handled;
static void handler(int number) {
	(void)number;
	handled++;
}

static void look(const char *what, long result) {
	say("%s: %ld %s, handled %d", what, result, result < 0 ? strerrorname_np(errno) : "", (int)handled);
	sigset_t now;
	sigprocmask(SIG_SETMASK, NULL, &now);
	say("%s: blocked again: %s", what, yes_no(sigismember(&now, SIGUSR1)));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	sigset_t with, without;
	sigemptyset(&without);
	sigemptyset(&with);
	sigaddset(&with, SIGUSR1);
	sigprocmask(SIG_BLOCK, &with, NULL);
	struct pollfd one = {.fd = both.server, .events = POLLIN};
	struct timespec wait = {.tv_sec = 10}, brief = {.tv_nsec = 50 * 1000000};
	fd_set reads;

	raise(SIGUSR1);
	look("poll, blocked", poll(&one, 1, 50));
	look("ppoll, let in", ppoll(&one, 1, &wait, &without));
	raise(SIGUSR1);
	FD_ZERO(&reads);
	FD_SET(both.server, &reads);
	look("pselect, blocked", pselect(both.server + 1, &reads, NULL, NULL, &brief, &with));
	FD_SET(both.server, &reads);
	look("pselect, let in", pselect(both.server + 1, &reads, NULL, NULL, &wait, &without));
	send_all(both.client, "x", 1);
	wait_for(both.server, POLLIN);
	look("ppoll, ready", ppoll(&one, 1, &wait, &without));
	return 0;
}

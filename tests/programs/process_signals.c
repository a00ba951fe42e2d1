/* signal-safety(7): a handler may call socket, connect, poll, send, recv, close and the like whatever it has interrupted, also fork(2), which
 * holds the locks of the C library's allocator. CHILDREN children by default. (A call may give EAGAIN there: see COMPATIBILITY.) */
#include "process.h"

#define BALLAST ((size_t)24 << 20) /* fork takes a while to copy what has the pages */
#define MANY 12

static struct pair mine;
static volatile unsigned handled, within, answered;
static volatile bool forks;

static void handler(int number) {
	(void)number;
	int error = errno, fds[MANY];
	char byte = 'h';
	for (int i = 0; i < MANY; i++) fds[i] = socket(local.storage.ss_family, SOCK_STREAM, 0);
	struct pollfd one = {.fd = mine.server, .events = POLLIN};
	if (send(mine.client, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1 && poll(&one, 1, 5000) == 1)
		answered += recv(mine.server, &byte, 1, MSG_DONTWAIT) == 1;
	for (int i = 0; i < MANY; i++)
		if (fds[i] >= 0) close(fds[i]);
	handled++;
	within += forks;
	errno = error;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int children = (int)argument(1, 150), good = 0, listener = new_listener(0, 8);
	mine = connect_pair(listener);
	char *ballast = malloc(BALLAST);
	memset(ballast, 1, BALLAST);
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGUSR1, &action, NULL);
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	struct itimerspec often = {.it_interval = {0, 400000}, .it_value = {0, 400000}};
	must("timer_create", timer_create(CLOCK_MONOTONIC, &event, &timer));
	must("timer_settime", timer_settime(timer, 0, &often, NULL));
	for (int i = 0; i < children; i++) {
		forks = true;
		pid_t child = (pid_t)must("fork", fork());
		forks = false;
		if (child == 0) {
			/* Timers are not inherited, a signal that has come already is handled by now or not at all. */
			signal(SIGUSR1, SIG_IGN);
			signal(SIGALRM, SIG_DFL);
			alarm(20);
			_exit(own_sockets_work() ? 0 : 1);
		}
		int status = 0;
		must("waitpid", waitpid(child, &status, 0));
		good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	must("timer_delete", timer_delete(timer));
	say("children: %d of %d", good, children);
	say("handlers have run: %s, within fork: %s, and were answered: %s", yes_no(handled > 0), yes_no(within > 0), yes_no(answered > 0));
	/* What a handler has sent and not got back. */
	char bytes[64];
	while (recv(mine.server, bytes, sizeof bytes, MSG_DONTWAIT) > 0) {}
	say("the connection: %s", yes_no(moves(mine, 3)));
	return 0;
}

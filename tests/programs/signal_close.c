/* A signal handler closes the socket that its thread is sending on, at any moment of that (signal-safety(7): close is safe): the peer
 * finds the end of file behind what it gets. */
#include "common.h"

static volatile int sending;
static volatile sig_atomic_t closed;

static void close_it(int signal) {
	(void)signal;
	close(sending);
	closed = 1;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct sigaction action = {.sa_handler = close_it};
	must("sigaction", sigaction(SIGUSR1, &action, NULL));
	int listener = new_listener(0, 8), rounds = (int)argument(1, 30);
	static char data[30000], taken[65536];
	timer_t timer;
	struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
	must("timer", timer_create(CLOCK_MONOTONIC, &event, &timer));
	int ended = 0;
	for (int i = 0; i < rounds; i++) {
		struct pair both = connect_pair(listener);
		sending = both.client;
		closed = 0;
		struct itimerspec soon = {.it_value.tv_nsec = 2000000 + i * 100000};
		must("timer", timer_settime(timer, 0, &soon, NULL));
		while (!closed) {
			send(both.client, data, sizeof data, MSG_DONTWAIT | MSG_NOSIGNAL);
			while (!closed && recv(both.server, taken, sizeof taken, MSG_DONTWAIT) > 0) {
			}
		}
		for (;;) {
			struct pollfd one = {.fd = both.server, .events = POLLIN};
			if (must("poll", poll(&one, 1, ARRIVAL_MS / 4)) == 0) break;
			ssize_t got = recv(both.server, taken, sizeof taken, 0);
			if (got <= 0) {
				ended++;
				break;
			}
		}
		close(both.server);
	}
	say("ended: %d of %d", ended, rounds);
	return 0;
}

/* A timer signal every millisecond with SA_RESTART, as a profiler sends it, while connections are made, used and closed:
 * nothing fails, nothing is lost (signal(7): connect, accept, recv, send are restarted). Case B41. ARGUMENT: rounds (100). */
#include "common.h"

static volatile sig_atomic_t ticks;
static void tick(int number) {
	(void)number;
	ticks++;
}

static void *serve(void *context) {
	int listener = *(int *)context, rounds = (int)argument(1, 100);
	for (int i = 0; i < rounds; i++) {
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		char text[5000];
		size_t got = recv_all(fd, text, sizeof text);
		send_all(fd, text, got);
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct sigaction action = {.sa_handler = tick, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL); /* takes the watchdog's place */
	sigaction(SIGPROF, &action, NULL);
	struct itimerval every = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_REAL, &every, NULL);
	int listener = new_listener(0, 8), rounds = (int)argument(1, 100), good = 0;
	pthread_t server = start_thread(serve, &listener);
	for (int i = 0; i < rounds; i++) {
		int fd = new_socket(0);
		must("connect", connect_to(fd, name_of(listener)));
		char text[5000];
		fill_pattern(text, sizeof text, 0, (unsigned)i);
		send_all(fd, text, sizeof text);
		good += recv_pattern(fd, sizeof text, sizeof text, (unsigned)i) == sizeof text;
		close(fd);
	}
	pthread_join(server, NULL);
	say("rounds without a fault: %d of %d", good, rounds);
	while (!ticks) sleep_ms(1);
	say("the timer ran: %s", yes_no(ticks > 0));
	return 0;
}

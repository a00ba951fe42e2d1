/* Rounds of connect, transfer, close in one process: what is left open or allocated must not grow. Cases B53, B54.
 *
 * soak_connect ADDRESS ROUNDS: after a tenth of the rounds and after all of them prints "descriptors N", "rss KIB",
 * "locked KIB", "maps N", "threads N"; then "rounds N whole" */
#include "measure.h"

enum { BYTES = 5000 };

static int rounds;

static void *serve(void *context) {
	int listener = *(int *)context;
	char text[BYTES];
	for (int i = 0; i < rounds; i++) {
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		send_all(fd, text, recv_all(fd, text, BYTES));
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	rounds = (int)argument(1, 1000);
	alarm(0);
	int listener = new_listener(0, 16), whole = 0;
	pthread_t server = start_thread(serve, &listener);
	char text[BYTES];
	for (int i = 0; i < rounds; i++) {
		if (i == rounds / 10) measure();
		int fd = new_socket(0);
		must("connect", connect_to(fd, name_of(listener)));
		fill_pattern(text, BYTES, 0, (unsigned)i);
		send_all(fd, text, BYTES);
		whole += recv_pattern(fd, BYTES, BYTES, (unsigned)i) == BYTES;
		close(fd);
	}
	pthread_join(server, NULL);
	measure();
	say("rounds %d whole", whole);
	return 0;
}

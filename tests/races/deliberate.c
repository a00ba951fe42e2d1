/* Races on purpose, so that it is seen that races are found: on a variable of its own; and, over a connection, on bytes that are being sent
 * while another thread writes them, which only an instrumented library can see. Prints which, and leaves the rest to the sanitizer. */
#include "../programs/common.h"

enum { ROUNDS = 2000 };

static int variable;
static char bytes[64];
static struct pair both;

static void *adds(void *context) {
	for (int i = 0; i < ROUNDS; i++) variable++;
	return context;
}

static void *writes(void *context) {
	for (int i = 0; i < ROUNDS; i++) bytes[i % sizeof bytes] = (char)i;
	return context;
}

static void *reads(void *context) {
	char text[sizeof bytes];
	while (recv(both.server, text, sizeof text, 0) > 0)
		;
	return context;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	pthread_t one = start_thread(adds, NULL), other = start_thread(adds, NULL);
	pthread_join(one, NULL);
	pthread_join(other, NULL);

	both = new_pair();
	one = start_thread(writes, NULL);
	other = start_thread(reads, NULL);
	for (int i = 0; i < ROUNDS; i++) send_all(both.client, bytes, sizeof bytes);
	shutdown(both.client, SHUT_WR);
	pthread_join(one, NULL);
	pthread_join(other, NULL);
	say("raced");
	return 0;
}

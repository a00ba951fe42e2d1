/* close(2) and dup2(2) while other threads work on other sockets and on the same numbers: nobody is disturbed, bytes go to
 * nobody else; numbers that many threads open and close at the same time stay consistent. */
#include "common.h"

enum { THREADS = 6, ROUNDS = 40 };

static int listener, broken;
static pthread_mutex_t connecting = PTHREAD_MUTEX_INITIALIZER;

static void *rounds(void *context) {
	unsigned self = (unsigned)(uintptr_t)context;
	for (unsigned i = 0; i < ROUNDS; i++) {
		pthread_mutex_lock(&connecting); /* so that each gets its own peer */
		struct pair both = connect_pair(listener);
		pthread_mutex_unlock(&connecting);
		unsigned char out[777], in[777];
		fill_pattern(out, sizeof out, i, self);
		send_all(both.client, out, sizeof out);
		int copy = dup(both.server);
		close(both.server);
		bool good = recv_all(copy, in, sizeof in) == sizeof in && has_pattern(in, sizeof in, i, self);
		int file = open("/dev/zero", O_RDONLY);
		good &= read(file, in, 10) == 10 && in[3] == 0;
		close(file);
		close(both.client);
		good &= recv(copy, in, 1, 0) == 0;
		close(copy);
		if (!good) __atomic_add_fetch(&broken, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 16);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) threads[i] = start_thread(rounds, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
	say("broken: %d", broken);
	int next = dup(0);
	say("numbers are back: %s", yes_no(next == listener + 1));
	return 0;
}

/* Threads that make the first socket, or the first epoll set, of their process all at once, and then a connection each to one listener, which
 * was made by the one that was first. ARGUMENT 1: 1 for sets. */
#include "epoll.h"

#define THREADS 64

static pthread_barrier_t all_there;
static pthread_mutex_t listening = PTHREAD_MUTEX_INITIALIZER;
static int listener = -1;
static bool sets;

static void *one_of_many(void *context) {
	long *whole = context;
	pthread_barrier_wait(&all_there);
	int set = sets ? new_set() : -1, client = new_socket(0);
	if (sets) add(set, client, EPOLLIN, 'c');
	pthread_mutex_lock(&listening);
	if (listener < 0) listener = new_listener(0, 2 * THREADS);
	pthread_mutex_unlock(&listening);
	must("connect", connect_to(client, name_of(listener)));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	/* whose end that is, nobody knows: each sends on both */
	send_all(client, "client", 6);
	send_all(server, "server", 6);
	char bytes[6];
	if (sets) {
		struct epoll_event event;
		must("epoll_wait", epoll_wait(set, &event, 1, ARRIVAL_MS));
		*whole = event.data.u64 == 'c';
	} else {
		*whole = 1;
	}
	*whole &= recv_all(client, bytes, 6) == 6 && !memcmp(bytes, "server", 6);
	*whole &= recv_all(server, bytes, 6) == 6 && !memcmp(bytes, "client", 6);
	pthread_barrier_wait(&all_there);
	close(client);
	close(server);
	if (sets) close(set);
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	sets = argument(1, 0);
	pthread_t threads[THREADS];
	long whole[THREADS] = {0}, sum = 0;
	pthread_barrier_init(&all_there, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) threads[i] = start_thread(one_of_many, &whole[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum += whole[i];
	}
	say("whole: %ld of %d", sum, THREADS);
	return 0;
}

/* Ten threads, each blocked in poll or select on its own socket: each is woken by its own data only, whatever the order;
 * and ten threads on one and the same socket are all woken by one event. */
#include "common.h"

enum { THREADS = 10 };

static struct pair pairs[THREADS], shared;
static int woken[THREADS], everybody;

static void *wait_own(void *context) {
	int self = (int)(intptr_t)context, ready;
	short events;
	if (self % 2) {
		fd_set reads;
		FD_ZERO(&reads);
		FD_SET(pairs[self].server, &reads);
		ready = select(pairs[self].server + 1, &reads, NULL, NULL, NULL);
		events = FD_ISSET(pairs[self].server, &reads) ? POLLIN : 0;
	} else {
		struct pollfd one = {.fd = pairs[self].server, .events = POLLIN};
		ready = poll(&one, 1, -1);
		events = one.revents;
	}
	char name = 0;
	ssize_t got = recv(pairs[self].server, &name, 1, 0);
	woken[self] = ready == 1 && events == POLLIN && got == 1 && name == 'a' + self ? 1 : -1;
	__atomic_add_fetch(&everybody, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void *wait_shared(void *context) {
	(void)context;
	struct pollfd one = {.fd = shared.server, .events = POLLIN};
	if (poll(&one, 1, -1) == 1 && one.revents == POLLIN) __atomic_add_fetch(&everybody, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void wait_count(int count) {
	for (int i = 0; i < ARRIVAL_MS && __atomic_load_n(&everybody, __ATOMIC_SEQ_CST) < count; i++) sleep_ms(1);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) pairs[i] = new_pair();
	for (int i = 0; i < THREADS; i++) threads[i] = start_thread(wait_own, (void *)(intptr_t)i);
	sleep_ms(100);
	say("woken before anything was sent: %d", everybody);
	for (int i = 0; i < THREADS; i++) {
		int turn = (i * 7 + 3) % THREADS;
		char name = (char)('a' + turn);
		send_all(pairs[turn].client, &name, 1);
		wait_count(i + 1);
		sleep_ms(5);
		say("thread %d: %d, woken %d", turn, woken[turn], everybody);
	}
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);

	shared = new_pair();
	everybody = 0;
	for (int i = 0; i < THREADS; i++) threads[i] = start_thread(wait_shared, NULL);
	sleep_ms(100);
	say("one socket, before: %d", everybody);
	send_all(shared.client, "x", 1);
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
	say("one socket, after: %d", everybody);
	return 0;
}

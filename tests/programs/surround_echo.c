/* A server of several threads, half of which wait in poll and half in epoll, and clients that come and go: memory is allocated and freed all
 * the time, in one thread and another. ARGUMENT 1: connections a client. */
#include "epoll.h"

#define PAIRS 4
#define PIECE 3000
#define ROUNDS 8

static int listener;
static long connections;

static void echo(int fd) {
	char *bytes = malloc(PIECE);
	ssize_t got = recv(fd, bytes, PIECE, 0);
	if (got > 0) send_all(fd, bytes, (size_t)got);
	free(bytes);
}

static bool ended(int fd) {
	char byte;
	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

static void *server(void *context) {
	bool with_set = *(long *)context % 2;
	for (long i = 0; i < connections; i++) {
		int fd = (int)must("accept", accept(listener, NULL, NULL)), set = with_set ? new_set() : -1;
		if (with_set) add(set, fd, EPOLLIN | EPOLLRDHUP, 'f');
		for (;;) {
			struct pollfd one = {.fd = fd, .events = POLLIN};
			struct epoll_event event;
			must("wait", with_set ? epoll_wait(set, &event, 1, ARRIVAL_MS) : poll(&one, 1, ARRIVAL_MS));
			if (ended(fd)) break;
			echo(fd);
		}
		close(fd);
		if (with_set) close(set);
	}
	return NULL;
}

static void *client(void *context) {
	long *good = context;
	for (long i = 0; i < connections; i++) {
		int fd = new_socket(0);
		must("connect", connect_to(fd, name_of(listener)));
		for (unsigned round = 0; round < ROUNDS; round++) {
			send_pattern(fd, PIECE, 1000, round);
			*good += recv_pattern(fd, PIECE, PIECE, round) == PIECE;
		}
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	connections = argument(1, 20);
	listener = new_listener(0, 64);
	pthread_t threads[2 * PAIRS];
	long numbers[PAIRS], good[PAIRS] = {0}, sum = 0;
	for (long i = 0; i < PAIRS; i++) {
		numbers[i] = i;
		threads[2 * i] = start_thread(server, &numbers[i]);
		threads[2 * i + 1] = start_thread(client, &good[i]);
	}
	for (int i = 0; i < 2 * PAIRS; i++) pthread_join(threads[i], NULL);
	for (int i = 0; i < PAIRS; i++) sum += good[i];
	say("rounds that came back: %ld of %ld", sum, PAIRS * connections * ROUNDS);
	return 0;
}

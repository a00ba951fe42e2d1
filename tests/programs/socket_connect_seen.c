/* A socket that one thread connects, in the eyes of another one that has accepted the connection meanwhile: whoever has the accepted end
 * knows that the connection stands, so the connecting end has its peer's end of file, or data, to give, though its connect may not have
 * returned yet. connect(2), accept(2), poll(2). */
#include "common.h"

#define ROUNDS 400

static int listener;
static int client;

static void *connects(void *unused) {
	(void)unused;
	must("connect", connect_to(client, name_of(listener)));
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 8);
	int wrong_events = 0, wrong_bytes = 0, wrong_ends = 0;
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t thread;
		client = new_socket(0);
		if (pthread_create(&thread, NULL, connects, NULL)) die("pthread_create");
		int server = (int)must("accept", accept(listener, NULL, NULL));
		if (round % 2) must("send", send(server, "x", 1, 0));
		close(server);
		struct pollfd one = {.fd = client, .events = POLLIN};
		char byte;
		wrong_events += round % 4 < 2 && (poll(&one, 1, ARRIVAL_MS) != 1 || one.revents != POLLIN);
		if (round % 2) wrong_bytes += recv(client, &byte, 1, 0) != 1;
		wrong_ends += recv(client, &byte, 1, 0) != 0;
		pthread_join(thread, NULL);
		close(client);
	}
	say("%d rounds: events %d wrong, bytes %d wrong, ends %d wrong", ROUNDS, wrong_events, wrong_bytes, wrong_ends);
	return 0;
}

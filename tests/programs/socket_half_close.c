/* shutdown(2), SHUT_WR: everything sent before arrives, then end of file; the other direction stays open. 8 MiB are sent,
 * the writing side is shut, the echo comes back whole. Then quick open, send, close rounds. Case B38. */
#include "common.h"

enum { ROUNDS = 200 };

static uint64_t total;

static void *echo(void *context) {
	int fd = *(int *)context;
	char *buffer = malloc(65536), *all = malloc(total);
	size_t have = 0;
	ssize_t got;
	while ((got = recv(fd, buffer, 65536, 0)) > 0) {
		memcpy(all + have, buffer, (size_t)got);
		have += (size_t)got;
	}
	send_all(fd, all, have);
	shutdown(fd, SHUT_WR);
	free(buffer);
	free(all);
	return (void *)have;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	total = (uint64_t)argument(1, 8 << 20);
	struct pair both = new_pair();
	pthread_t server = start_thread(echo, &both.server);
	send_pattern(both.client, total, 65536, 7);
	report("shutdown WR", shutdown(both.client, SHUT_WR));
	say("echo whole: %s", yes_no(recv_pattern(both.client, total, 65536, 7) == total));
	char byte;
	report("then", recv(both.client, &byte, 1, 0));
	void *seen;
	pthread_join(server, &seen);
	say("server saw all: %s", yes_no((uint64_t)(uintptr_t)seen == total));
	close_pair(both);

	int listener = new_listener(0, 16), whole = 0;
	for (int i = 0; i < ROUNDS; i++) {
		struct pair quick = {.client = new_socket(0)};
		must("connect", connect_to(quick.client, name_of(listener)));
		send_all(quick.client, "hello", 5);
		close(quick.client);
		quick.server = (int)must("accept", accept(listener, NULL, NULL));
		char text[16];
		whole += recv_all(quick.server, text, sizeof text) == 5 && !memcmp(text, "hello", 5);
		close(quick.server);
	}
	say("open, send, close: %d of %d whole", whole, ROUNDS);
	return 0;
}

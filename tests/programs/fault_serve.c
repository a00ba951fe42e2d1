/* A server of one connection after the other that outlives bad clients (accept(2)), and its client.
 *
 * fault_serve serve ADDRESS PORT COUNT [DELAY]   listens, prints "listening", waits DELAY milliseconds (0), and accepts; each
 *                                                connection is answered when its bytes were whole, and said to be "served" or "lost".
 *                                                Ends when COUNT were served; with COUNT 0 nothing is accepted
 * fault_serve ask ADDRESS PORT                   the client: "answered", or the error */
#include "common.h"

enum { BYTES = 300000 };

static int serve(struct address where, long count, int delay) {
	int listener = new_socket(0), on = 1;
	must("SO_REUSEADDR", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("bind", bind_to(listener, where));
	must("listen", listen(listener, 16));
	say("listening");
	sleep_ms(delay);
	if (!count) sleep(600);
	char text[4096];
	for (long served = 0; served < count;) {
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		uint64_t done = 0;
		ssize_t got = 1;
		while (done < BYTES && (got = recv(fd, text, sizeof text, 0)) > 0 && has_pattern(text, (size_t)got, done, 9))
			done += (uint64_t)got;
		bool whole = done == BYTES && send(fd, "y", 1, MSG_NOSIGNAL) == 1;
		say(whole ? "served" : "lost");
		served += whole;
		close(fd);
	}
	return 0;
}

static int ask(struct address where) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, where));
	send_pattern(fd, BYTES, 10000, 9);
	char byte = 0;
	bool answered = recv_all(fd, &byte, 1) == 1 && byte == 'y';
	say(answered ? "answered" : "no answer");
	return answered ? 0 : 1;
}

int main(int argc, char **argv) {
	if (argc < 4) {
		fprintf(stderr, "fault_serve serve ADDRESS PORT COUNT [DELAY] | ask ADDRESS PORT\n");
		return 2;
	}
	bool serves = !strcmp(argv[1], "serve");
	begin(argc - 1, argv + 1);
	alarm(600);
	struct address where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 0));
	return serves ? serve(where, argument(2, 1), (int)argument(3, 0)) : ask(where);
}

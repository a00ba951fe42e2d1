/* A server that forks for its client, and the client, by the plainest calls alone: what the shipped library has for such programs (accept,
 * send, recv). What arrives is compared byte by byte.
 *
 * forking_pair ADDRESS server PORT SPEAKS: serves one connection by a child. SPEAKS: 1, the server sends first, or 0.
 * forking_pair ADDRESS client PORT SPEAKS SILENCE: after so many ms the client speaks (or reads). Prints "right" if all was. */
#include "common.h"

#include <sys/wait.h>

enum { ROUNDS = 20, BYTES = 15000, PATIENCE_S = 40 };

static char sent[BYTES], got[BYTES];

/* Sends all of `sent`. */
static void say_all(int fd) {
	for (size_t done = 0; done < BYTES;) done += (size_t)must("send", send(fd, sent + done, BYTES - done, 0));
}

/* Receives as much, which must be the same. False: the end. */
static bool hear_all(int fd) {
	for (size_t done = 0; done < BYTES;) {
		ssize_t some = must("recv", recv(fd, got + done, BYTES - done, 0));
		if (some == 0) return false;
		done += (size_t)some;
	}
	if (memcmp(sent, got, BYTES)) {
		say("FAILED: other bytes: %02x %02x %02x %02x %02x", got[0] & 255, got[1] & 255, got[2] & 255, got[3] & 255, got[4] & 255);
		exit(2);
	}
	return true;
}

static int serve(in_port_t port, bool speaks) {
	int listener = new_socket(0), on = 1, status = -1;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	*port_of(&local) = port;
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 8));
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	if (must("fork", fork())) {
		close(fd);
		must("wait", wait(&status));
		return status != 0;
	}
	close(listener);
	alarm(PATIENCE_S);
	if (speaks) say_all(fd);
	while (hear_all(fd)) say_all(fd);
	close(fd);
	exit(0);
}

static int ask(in_port_t port, bool speaks, int silence) {
	int fd = new_socket(0);
	*port_of(&local) = port;
	must("connect", connect_to(fd, local));
	sleep_ms(silence);
	bool whole = !speaks || hear_all(fd);
	for (int round = 0; whole && round < ROUNDS; round++) {
		say_all(fd);
		whole = hear_all(fd);
	}
	close(fd);
	say(whole ? "right" : "FAILED: an early end");
	return !whole;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	alarm(PATIENCE_S);
	for (size_t i = 0; i < BYTES; i++) sent[i] = (char)(i * 7 + i / 251 + 1);
	in_port_t port = htons((in_port_t)argument(2, 0));
	bool speaks = argument(3, 0);
	return argc > 2 && !strcmp(argv[2], "server") ? serve(port, speaks) : ask(port, speaks, (int)argument(4, 0));
}

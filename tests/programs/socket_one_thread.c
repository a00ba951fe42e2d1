/* One thread that listens, connects to itself and accepts, in that order, and then moves 1 MiB both ways, as tests of servers do; at its
 * own addresses, blocking and not, several at once, and a connect to the own port. Case B11. */
#include "common.h"

enum { SIZE = 1 << 20 };

/* Neither end ever waits for the other: the thread would wait for itself. */
static void both_ways(struct pair both) {
	static unsigned char out[1 << 15], in[1 << 15];
	uint64_t sent[2] = {0, 0}, got[2] = {0, 0};
	int ends[2] = {both.client, both.server};
	bool right = true;
	while (got[0] < SIZE || got[1] < SIZE)
		for (int k = 0; k < 2; k++) {
			if (sent[k] < SIZE) {
				size_t now = SIZE - sent[k] < sizeof out ? SIZE - sent[k] : sizeof out;
				fill_pattern(out, now, sent[k], (unsigned)k);
				ssize_t done = send(ends[k], out, now, MSG_DONTWAIT | MSG_NOSIGNAL);
				if (done < 0 && errno != EAGAIN) die("send");
				if (done > 0) sent[k] += (uint64_t)done;
			}
			ssize_t done = recv(ends[k], in, sizeof in, MSG_DONTWAIT);
			if (done < 0 && errno != EAGAIN) die("recv");
			if (done == 0) die("an early end");
			if (done > 0) {
				right &= has_pattern(in, (size_t)done, got[k], (unsigned)!k);
				got[k] += (uint64_t)done;
			}
		}
	say("  1 MiB both ways: %s", yes_no(right));
}

static void play(const char *what, int client_flags, int listener_flags) {
	say("%s", what);
	int listener = new_listener(listener_flags, 4);
	struct pair both = {.client = new_socket(client_flags)};
	int result = connect_to(both.client, name_of(listener));
	say("  connect: %s", result < 0 ? strerrorname_np(errno) : "ok");
	wait_for(both.client, POLLOUT);
	wait_for(listener, POLLIN);
	both.server = (int)must("accept", accept(listener, NULL, NULL));
	report_socket_error("  client", both.client);
	both_ways(both);
	close_pair(both);
	close(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	play("blocking", 0, 0);
	play("nonblocking client", SOCK_NONBLOCK, 0);
	play("nonblocking listener", 0, SOCK_NONBLOCK);
	play("both nonblocking", SOCK_NONBLOCK, SOCK_NONBLOCK);

	int listener = new_listener(0, 16), clients[8];
	for (size_t i = 0; i < COUNT(clients); i++) must("connect", connect_to(clients[i] = new_socket(0), name_of(listener)));
	for (size_t i = 0; i < COUNT(clients); i++) send_all(clients[i], (char[]){(char)('a' + i)}, 1);
	for (size_t i = 0; i < COUNT(clients); i++) {
		int server = (int)must("accept", accept(listener, NULL, NULL));
		char byte = 0;
		must("recv", recv(server, &byte, 1, 0));
		say("accepted %c", byte);
		close(server);
	}
	for (size_t i = 0; i < COUNT(clients); i++) close(clients[i]);
	struct address name = name_of(listener);
	report("connect of the listener to itself", connect_to(listener, name));
	close(listener);
	int client = new_socket(0);
	report("connect after its end", connect_to(client, name));
	return 0;
}

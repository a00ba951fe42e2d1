/* socket(7), SO_SNDBUF and SO_RCVBUF: doubled, bounded below and above, kept over connect and by accepted sockets; a small receive buffer
 * still takes everything, piece by piece. */
#include "common.h"

static int get(int fd, int option) {
	int value = -1;
	socklen_t length = sizeof value;
	must("get", getsockopt(fd, SOL_SOCKET, option, &value, &length));
	return value;
}

static void set(int fd, int option, int value) {
	int result = setsockopt(fd, SOL_SOCKET, option, &value, sizeof value);
	say("  %s %d: %s, reads %d", option == SO_SNDBUF ? "SO_SNDBUF" : "SO_RCVBUF", value, result < 0 ? strerrorname_np(errno) : "ok", get(fd, option));
}

static const int values[] = {0, 1, 100, 2304, 4000, 65536, 100001, 212992, 1 << 24, INT_MAX, -1, INT_MIN};

int main(int argc, char **argv) {
	begin(argc, argv);
	int fresh = new_socket(0);
	for (size_t i = 0; i < COUNT(values); i++) {
		set(fresh, SO_SNDBUF, values[i]);
		set(fresh, SO_RCVBUF, values[i]);
	}
	static const int sizes[] = {1, 5000, 50000};
	for (size_t i = 0; i < COUNT(sizes); i++) {
		say("connections with %d", sizes[i]);
		int listener = new_socket(0), client = new_socket(0);
		set(listener, SO_RCVBUF, sizes[i]);
		set(listener, SO_SNDBUF, sizes[i]);
		must("bind", bind_to(listener, local));
		must("listen", listen(listener, 4));
		set(client, SO_RCVBUF, sizes[i]);
		set(client, SO_SNDBUF, sizes[i]);
		must("connect", connect_to(client, name_of(listener)));
		int server = (int)must("accept", accept(listener, NULL, NULL));
		say("  client %d %d, server %d %d", get(client, SO_SNDBUF), get(client, SO_RCVBUF), get(server, SO_SNDBUF), get(server, SO_RCVBUF));
		enum { BYTES = 30000 };
		uint64_t sent = 0, got = 0;
		static char out[BYTES], in[BYTES];
		fill_pattern(out, BYTES, 0, 3);
		int64_t until = now_us() + 20000000;
		while (got < BYTES && now_us() < until) {
			ssize_t done = sent < BYTES ? send(client, out + sent, BYTES - sent, MSG_DONTWAIT) : 0;
			if (done > 0) sent += (uint64_t)done;
			done = recv(server, in + got, BYTES - got, MSG_DONTWAIT);
			if (done > 0) got += (uint64_t)done;
		}
		say("  all of it: %s", yes_no(got == BYTES && has_pattern(in, BYTES, 0, 3)));
		set(client, SO_SNDBUF, 70000);
		set(server, SO_RCVBUF, 70000);
		close(client);
		close(server);
		close(listener);
	}
	return 0;
}

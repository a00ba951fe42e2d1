/* SO_RCVBUF of a listener that listens already: socket(7), tcp(7): connections that are accepted later have it, those that stand do not.
 * How much a connection takes while nobody reads is printed as a relation. */
#include "common.h"

static void resize(int fd, int bytes) { must("SO_RCVBUF", setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes)); }

/* So many bytes go into a connection to the listener before it would block. */
static long takes(int listener, struct pair *both) {
	static char bytes[4096];
	int small = 4096;
	*both = (struct pair){.client = new_socket(0)};
	must("SO_SNDBUF", setsockopt(both->client, SOL_SOCKET, SO_SNDBUF, &small, sizeof small));
	must("connect", connect_to(both->client, name_of(listener)));
	both->server = (int)must("accept", accept(listener, NULL, NULL));
	long sum = 0;
	for (ssize_t sent; (sent = send(both->client, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) sum += sent;
	return sum;
}

static int size_of(int fd) {
	int bytes = 0;
	socklen_t length = sizeof bytes;
	must("SO_RCVBUF", getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, &length));
	return bytes;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_socket(0);
	must("bind", bind_to(listener, local));
	resize(listener, 100000);
	must("listen", listen(listener, 8));
	struct pair first, second, third;
	long before = takes(listener, &first);
	resize(listener, 4096);
	long small = takes(listener, &second);
	resize(listener, 100000);
	long again = takes(listener, &third);
	say("smaller: %s, larger again: %s", yes_no(small < before / 2), yes_no(again > small * 2));
	say("shown: %d %d %d", size_of(first.server), size_of(second.server), size_of(third.server));
	close_pair(first);
	close_pair(second);
	close_pair(third);
	return 0;
}

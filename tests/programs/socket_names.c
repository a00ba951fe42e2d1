/* getsockname(2), getpeername(2) before and after bind, listen, connect, accept and shutdown; "the returned address is
 * truncated if the buffer provided is too small; in this case, addrlen will return a value greater than was supplied". */
#include "common.h"

typedef int name_call(int, struct sockaddr *, socklen_t *);

static void show(const char *what, int fd, name_call *call) {
	struct address name = {.length = sizeof name.storage};
	if (report(what, call(fd, sockaddr_of(&name), &name.length)) < 0) return;
	char text[INET6_ADDRSTRLEN] = "";
	const void *at = name.storage.ss_family == AF_INET
				 ? (void *)&((struct sockaddr_in *)&name.storage)->sin_addr
				 : (void *)&((struct sockaddr_in6 *)&name.storage)->sin6_addr;
	inet_ntop(name.storage.ss_family, at, text, sizeof text);
	say("%s: %s, port %s, length %u", what, text, *port_of(&name) ? "set" : "0", name.length);
}

static void show_both(const char *what, int fd) {
	char text[64];
	snprintf(text, sizeof text, "%s: getsockname", what);
	show(text, fd, getsockname);
	snprintf(text, sizeof text, "%s: getpeername", what);
	show(text, fd, getpeername);
}

static void truncated(const char *what, int fd, name_call *call, socklen_t room) {
	unsigned char buffer[sizeof(struct sockaddr_storage)];
	memset(buffer, 0xa5, sizeof buffer);
	socklen_t length = room;
	report(what, call(fd, (struct sockaddr *)buffer, &length));
	say("%s: room %u, length %u, untouched behind it: %s", what, room, length, yes_no(buffer[room] == 0xa5));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_socket(0);
	show_both("fresh", listener);
	must("bind", bind_to(listener, local));
	show_both("bound", listener);
	must("listen", listen(listener, 4));
	show_both("listening", listener);
	struct pair both = connect_pair(listener);
	show_both("client", both.client);
	show_both("server", both.server);
	struct address client = name_of(both.client), peer = {.length = sizeof peer.storage};
	must("getpeername", getpeername(both.server, sockaddr_of(&peer), &peer.length));
	say("the server's peer is the client: %s", yes_no(*port_of(&client) == *port_of(&peer)));
	struct address listening = name_of(listener), server = name_of(both.server);
	say("the server's port is the listener's: %s", yes_no(*port_of(&listening) == *port_of(&server)));
	truncated("getsockname", both.client, getsockname, 4);
	truncated("getpeername", both.server, getpeername, 8);
	truncated("getpeername", both.server, getpeername, 0);
	must("shutdown", shutdown(both.client, SHUT_WR));
	wait_for(both.server, POLLRDHUP);
	show_both("client after SHUT_WR", both.client);
	show_both("server after the peer's SHUT_WR", both.server);
	close(both.client);
	show_both("server after the peer's close", both.server);
	close(both.server);

	int bound = new_socket(0);
	must("bind", bind_to(bound, local));
	struct address before = name_of(bound);
	must("connect", connect_to(bound, name_of(listener)));
	struct address after = name_of(bound);
	say("a bound client keeps its port: %s", yes_no(*port_of(&before) == *port_of(&after)));
	return 0;
}

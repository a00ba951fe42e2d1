/* fork(2): "The child inherits copies of the parent's set of open file descriptors. Each file descriptor in the child refers to the same
 * open file description [...] as the corresponding file descriptor in the parent." A server may have the connection in the process that
 * has accepted it, in a child of that, or in a child of the one that has called listen; the loop may block, or wait in poll, select or
 * epoll. Several MiB there and back, small and large messages, one connection and several at once. Cases B23 (b), B29. */
#include "deferred_loop.h"

#define MIB (1 << 20)

static void one_connection(enum style style, enum waiting way) {
	struct server server = start_server(style, 1, echo_by, way);
	int fd = connect_to_server(&server);
	ask_once("one byte", fd, 1);
	ask_once("4000 bytes", fd, 4000);
	say("4 MiB: %lu", through_echo(fd, 4 * MIB, 70001));
	ask_once("one byte", fd, 1);
	close(fd);
	finish_child("server", server.child);
}

static void several(enum style style) {
	enum { MANY = 6 };
	struct server server = start_server(style, MANY, echo_by, POLL);
	int fds[MANY];
	for (int i = 0; i < MANY; i++) fds[i] = connect_to_server(&server);
	for (int i = 0; i < MANY; i++) {
		/* one that does not fork serves them one after the other */
		say("connection %d: %lu", i, through_echo(fds[i], MIB / 2, 5000));
		if (style != FORKING) close(fds[i]);
	}
	for (int i = 0; style == FORKING && i < MANY; i++) {
		say("connection %d again: %lu", i, through_echo(fds[i], 10000, 100));
		close(fds[i]);
	}
	finish_child("server", server.child);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (enum style style = OWN; style < STYLES; style++) {
		for (enum waiting way = BLOCK; way < WAYS; way++) {
			say("%s, %s", style_names[style], way_names[way]);
			one_connection(style, way);
		}
		say("%s, several", style_names[style]);
		several(style);
	}
	return 0;
}

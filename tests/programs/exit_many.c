/* Connections that are opened, written to and closed, one after the other, and those that are open when the process ends: each arrives
 * whole, and ends in good order. Cases B36, B38.
 *
 * exit_many ADDRESS [ROUNDS]; for the end that leaves it runs itself: exit_many ADDRESS PORT ROUNDS OPEN */
#include "common.h"

#include <spawn.h>
#include <sys/wait.h>

enum { OPEN = 100, BYTES = 700 };

extern char **environ;

static int leave(uint16_t port, long rounds, long open) {
	struct address peer = local;
	*port_of(&peer) = htons(port);
	for (long i = 0; i < rounds + open; i++) {
		int fd = new_socket(0);
		must("connect", connect_to(fd, peer));
		send_all(fd, &i, sizeof i);
		send_pattern(fd, BYTES, BYTES, (unsigned)i);
		if (i < rounds) must("close", close(fd));
	}
	_exit(3);
}

/* Takes all of a connection, which says its number: whether that is what was sent, once. */
static bool is_whole(int peer, long most) {
	static bool seen[1 << 20];
	char more;
	long which = -1;
	bool named = recv_all(peer, &which, sizeof which) == sizeof which && which >= 0 && which < most && !seen[which];
	if (!named) return false;
	seen[which] = true;
	bool whole = recv_pattern(peer, BYTES, BYTES, (unsigned)which) == BYTES;
	return whole & (recv(peer, &more, 1, 0) == 0);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 4) return leave((uint16_t)argument(1, 0), argument(2, 0), argument(3, 0));
	long rounds = argument(1, 300), whole = 0, left = 0;
	/* room for all that come faster than they are read: a full one would leave some to TCP */
	int listener = new_listener(SOCK_CLOEXEC, 4096);
	struct address name = name_of(listener);
	char port[16], count[16], open[16];
	snprintf(port, sizeof port, "%d", ntohs(*port_of(&name)));
	snprintf(count, sizeof count, "%ld", rounds);
	snprintf(open, sizeof open, "%d", OPEN);
	char *arguments[] = {argv[0], argc > 1 ? argv[1] : "127.0.0.1", port, count, open, NULL};
	pid_t child;
	errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	int last[OPEN], status = -1;
	for (long i = 0; i < rounds; i++) {
		int peer = (int)must("accept", accept(listener, NULL, NULL));
		whole += is_whole(peer, rounds + OPEN);
		close(peer);
	}
	for (int i = 0; i < OPEN; i++) last[i] = (int)must("accept", accept(listener, NULL, NULL));
	must("waitpid", waitpid(child, &status, 0));
	for (int i = 0; i < OPEN; i++) left += is_whole(last[i], rounds + OPEN), close(last[i]);
	say("closed: whole %ld of %ld", whole, rounds);
	say("open at the end: whole %ld of %d, exit status %d", left, OPEN, WEXITSTATUS(status));
	close(listener);
	return 0;
}

/* Children, for the programs about processes. */
#ifndef PROCESS_H
#define PROCESS_H
#include "common.h"
#include <sys/wait.h>

/* Makes a child that does `work` and exits in an orderly way, so that its counters are written. */
static inline pid_t child_of(void (*work)(void *), void *context) {
	fflush(stdout);
	pid_t child = (pid_t)must("fork", fork());
	if (child == 0) {
		work(context);
		exit(0);
	}
	return child;
}

/* Waits for a child and says how it ended. */
static inline void ended(const char *what, pid_t child) {
	int status = 0;
	must("waitpid", waitpid(child, &status, 0));
	if (WIFSIGNALED(status))
		say("%s: ended by signal %d", what, WTERMSIG(status));
	else
		say("%s: exit status %d", what, WEXITSTATUS(status));
}

/* Sends so many bytes each way over a connection of this process with itself. */
static inline bool moves(struct pair both, unsigned seed) {
	enum { BYTES = 20000 };
	send_pattern(both.client, BYTES, 7000, seed);
	if (recv_pattern(both.server, BYTES, 3000, seed) != BYTES) return false;
	send_pattern(both.server, BYTES, 7000, seed + 1);
	return recv_pattern(both.client, BYTES, 3000, seed + 1) == BYTES;
}

/* A connection of its own: listen, connect, accept, a byte each way. */
static inline bool own_sockets_work(void) {
	struct pair both = new_pair();
	bool works = moves(both, 7);
	close_pair(both);
	return works;
}
#endif

/* Servers that fork, and their clients. The accepted end of a connection is another process's than the connecting one: a child, which
 * writes its part of the transcript into a memory file; it is printed when the child has ended. */
#ifndef DEFERRED_H
#define DEFERRED_H
#include "common.h"
#include <sys/mman.h>
#include <sys/wait.h>

/* Which process has the accepted socket. */
enum style {
	OWN,	 /* the one that has called listen and accept */
	FORKING, /* a child of the one that has called accept, which has closed its copy */
	PREFORK, /* a child of the one that has called listen */
	STYLES
};

static const char *const style_names[] = {"own", "forking", "prefork"};

struct child {
	pid_t pid;
	int transcript;
};

/* Begins a child; true in it. There, output goes into the transcript. */
static inline bool begin_child(struct child *child) {
	child->transcript = (int)must("memfd_create", memfd_create("transcript", MFD_CLOEXEC));
	fflush(stdout);
	child->pid = (pid_t)must("fork", fork());
	if (child->pid) return false;
	alarm(WATCHDOG_SECONDS);
	must("dup2", dup2(child->transcript, STDOUT_FILENO));
	return true;
}

/* exit, not _exit: what the library counts it tells then. */
static inline void end_child(void) { exit(0); }

/* Waits for a child's end, and prints what it has said. */
static inline void finish_child(const char *name, struct child child) {
	int status;
	must("waitpid", waitpid(child.pid, &status, 0));
	char text[1 << 16];
	ssize_t length = must("pread", pread(child.transcript, text, sizeof text - 1, 0));
	text[length] = 0;
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) say("  %s: %s", name, line);
	if (WIFSIGNALED(status))
		say("  %s: killed by %s", name, sigabbrev_np(WTERMSIG(status)));
	else if (WEXITSTATUS(status))
		say("  %s: exit status %d", name, WEXITSTATUS(status));
	close(child.transcript);
}

/* What one end of a connection does; the number is its own to choose from. */
typedef void part(int fd, long number);

struct server {
	struct child child;
	struct address address;
};

static inline void serve_forking(int listener, int connections, part *serve, long number) {
	for (int i = 0; i < connections; i++) {
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		fflush(stdout);
		if (must("fork", fork()) == 0) {
			alarm(WATCHDOG_SECONDS);
			close(listener);
			serve(fd, number);
			close(fd);
			end_child();
		}
		close(fd);
	}
	int status;
	while (wait(&status) > 0)
		if (status) say("a child's status is %d", status);
}

/* A process that serves so many connections, one after the other unless it forks, with `serve`. */
static inline struct server start_server(enum style style, int connections, part *serve, long number) {
	struct server made;
	int meet[2], listener = style == OWN ? -1 : new_listener(0, 64);
	must("pipe", pipe(meet));
	if (begin_child(&made.child)) {
		if (style == OWN) listener = new_listener(0, 64);
		struct address name = name_of(listener);
		must("write", write(meet[1], &name, sizeof name));
		close(meet[0]);
		close(meet[1]);
		if (style == FORKING) serve_forking(listener, connections, serve, number);
		for (int i = 0; style != FORKING && i < connections; i++) {
			int fd = (int)must("accept", accept(listener, NULL, NULL));
			serve(fd, number);
			close(fd);
		}
		end_child();
	}
	if (read(meet[0], &made.address, sizeof made.address) != sizeof made.address) die("the server's address");
	close(meet[0]);
	close(meet[1]);
	if (style != OWN) close(listener);
	return made;
}

static inline int connect_to_server(const struct server *server) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, server->address));
	return fd;
}

/* One connection: both parts at once. */
static inline void talk(enum style style, part *serve, part *ask, long number) {
	struct server server = start_server(style, 1, serve, number);
	int fd = connect_to_server(&server);
	ask(fd, number);
	close(fd);
	finish_child("server", server.child);
}

/* Echoes until the end of the stream, however it comes: a blocking loop. */
static inline void echo(int fd, long piece) {
	char *buffer = malloc((size_t)piece);
	ssize_t got;
	while ((got = recv(fd, buffer, (size_t)piece, 0)) > 0) send_all(fd, buffer, (size_t)got);
	if (got < 0) report("echo: recv", got);
	free(buffer);
}

struct stream_out {
	int fd;
	uint64_t bytes;
	size_t piece;
};

static inline void *send_stream(void *context) {
	struct stream_out *out = context;
	send_pattern(out->fd, out->bytes, out->piece, 3);
	return NULL;
}

/* Sends so many bytes to a peer that echoes, and counts those that come back right. */
static inline uint64_t through_echo(int fd, uint64_t bytes, size_t piece) {
	struct stream_out out = {fd, bytes, piece};
	pthread_t thread = start_thread(send_stream, &out);
	uint64_t right = recv_pattern(fd, bytes, piece, 3);
	pthread_join(thread, NULL);
	return right;
}

/* One message there and back. */
static inline void ask_once(const char *what, int fd, size_t length) {
	say("%s: %s", what, through_echo(fd, length, length) == length ? "the same came back" : "WRONG");
}

#endif

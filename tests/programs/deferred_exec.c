// needs: forking_static
/* A connection that has not been used yet is handed to another program: execve(2), "By default, file descriptors remain open across an
 * execve()". As inetd does: an accepted socket becomes 0, 1 and 2 of a program, which may be one under the library or one that knows
 * nothing of it; or it is handed on by its number, by posix_spawn, or over a Unix socket (unix(7), SCM_RIGHTS). A listener may be handed
 * on just so, and a client's socket. Case B26. */
#include "deferred.h"
#include <spawn.h>
#include <sys/un.h>

extern char **environ;

static char *self, *beside; /* this program, and the one that stands beside it */

enum way { SAME, STATIC, CAT, SHELL, BY_NUMBER, SPAWNED, STDIO, PASSED, WAYS };

static const char *const names[] = {
    "the same program", "a static program", "cat", "a shell", "by its number", "posix_spawn", "the same program, by stdio", "over a Unix socket",
};

/* What the program is when it has been started by exec. */
static int be(const char *what, const char *number) {
	int fd = number ? atoi(number) : 0;
	if (!strcmp(what, "copy")) {
		char buffer[7000];
		ssize_t got;
		while ((got = read(fd, buffer, sizeof buffer)) > 0) send_all(fd ? fd : 1, buffer, (size_t)got);
		return got < 0;
	}
	if (!strcmp(what, "lines")) {
		setvbuf(stdout, NULL, _IOFBF, 4096);
		for (char line[100]; fgets(line, sizeof line, stdin);) {
			fputs(line, stdout);
			fflush(stdout);
		}
		return 0;
	}
	if (!strcmp(what, "accept")) {
		for (int i = 0; i < 3; i++) {
			int accepted = (int)must("accept", accept(fd, NULL, NULL));
			echo(accepted, 3000);
			close(accepted);
		}
		return 0;
	}
	return 9;
}

static void become(enum way way, int fd) {
	char number[12];
	snprintf(number, sizeof number, "%d", fd);
	switch (way) {
	case STATIC: execl(beside, beside, NULL); break;
	case CAT: execlp("cat", "cat", NULL); break;
	case SHELL: execl("/bin/sh", "sh", "-c", "while read line; do echo \"$line\"; done", NULL); break;
	case BY_NUMBER: execl(self, self, "127.0.0.1", "copy", number, NULL); break;
	case STDIO: execl(self, self, "127.0.0.1", "lines", NULL); break;
	default: execl(self, self, "127.0.0.1", "copy", NULL);
	}
	_exit(9);
}

static void onto_standard(int fd) {
	for (int to = 0; to <= 2; to++) must("dup2", dup2(fd, to));
	close(fd);
}

static pid_t spawn(int fd) {
	char *arguments[] = {self, "127.0.0.1", "copy", NULL};
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	for (int to = 0; to <= 2; to++) posix_spawn_file_actions_adddup2(&actions, fd, to);
	posix_spawn_file_actions_addclose(&actions, fd);
	pid_t child;
	errno = posix_spawn(&child, self, &actions, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	return child;
}

union control {
	struct cmsghdr header;
	char room[CMSG_SPACE(sizeof(int))];
};

/* Another process, which is no child made after accept, gets the socket. */
static void pass(int over, int fd) {
	union control control = {.header = {CMSG_LEN(sizeof fd), SOL_SOCKET, SCM_RIGHTS}};
	memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
	struct iovec byte = {"p", 1};
	struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	must("sendmsg", sendmsg(over, &message, 0));
}

static int take(int over) {
	union control control;
	char byte;
	struct iovec room = {&byte, 1};
	struct msghdr message = {.msg_iov = &room, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	must("recvmsg", recvmsg(over, &message, 0));
	int fd = -1;
	memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
	return fd;
}

/* A process that takes one socket, and echoes. */
static pid_t start_taker(int *over) {
	int ends[2];
	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	fflush(stdout);
	pid_t child = (pid_t)must("fork", fork());
	if (!child) {
		close(ends[0]);
		int fd = take(ends[1]);
		echo(fd, 4000);
		close(fd);
		exit(0);
	}
	close(ends[1]);
	*over = ends[0];
	return child;
}

/* A server that hands its connections on. */
static void serve(int listener, int connections, enum way way) {
	for (int i = 0; i < connections; i++) {
		int over = -1;
		pid_t child = way == PASSED ? start_taker(&over) : -1;
		int fd = (int)must("accept", accept4(listener, NULL, NULL, way == SPAWNED ? SOCK_CLOEXEC : 0));
		if (way == PASSED) pass(over, fd);
		if (way == SPAWNED) child = spawn(fd);
		if (child < 0 && !(child = (pid_t)must("fork", fork()))) {
			close(listener);
			if (way != BY_NUMBER) onto_standard(fd);
			become(way, fd);
		}
		close(fd);
		if (over >= 0) close(over);
		int status;
		must("waitpid", waitpid(child, &status, 0));
		if (status) say("FAILED: the program's status is %d", status);
	}
}

/* Lines, which shells and stdio take as well. */
static void lines(int fd, int many) {
	int good = 0;
	for (int i = 0; i < many; i++) {
		char line[40], back[40] = "";
		int length = snprintf(line, sizeof line, "line %d of many\n", i);
		send_all(fd, line, (size_t)length);
		good += recv_all(fd, back, (size_t)length) == (size_t)length && !strcmp(line, back);
	}
	say("lines: %d", good);
}

/* A shell ends by _exit, which may look like a reset. */
static void finish_talk(int fd) {
	char byte;
	must("shutdown", shutdown(fd, SHUT_WR));
	ssize_t got = recv(fd, &byte, 1, 0);
	say("the end: %s", got == 0 || (got < 0 && errno == ECONNRESET) ? "yes" : "no");
	close(fd);
}

static void through(enum way way) {
	enum { MANY = 3 };
	struct server server;
	int listener = new_listener(SOCK_CLOEXEC, 8);
	server.address = name_of(listener);
	if (begin_child(&server.child)) {
		serve(listener, MANY, way);
		end_child();
	}
	close(listener);
	for (int i = 0; i < MANY; i++) {
		int fd = connect_to_server(&server);
		lines(fd, 20);
		if (way != SHELL && way != STDIO) say("bytes: %lu", through_echo(fd, 700000, 50000));
		finish_talk(fd);
	}
	finish_child("server", server.child);
}

/* listen here, accept in the program that this one becomes. */
static void listener_handed_on(void) {
	struct server server;
	int listener = new_listener(0, 8);
	server.address = name_of(listener);
	if (begin_child(&server.child)) {
		char number[12];
		snprintf(number, sizeof number, "%d", listener);
		execl(self, self, "127.0.0.1", "accept", number, NULL);
		die("exec");
	}
	close(listener);
	for (int i = 0; i < 3; i++) {
		int fd = connect_to_server(&server);
		say("bytes: %lu", through_echo(fd, 200000, 10000));
		finish_talk(fd);
	}
	finish_child("server", server.child);
}

/* connect here, talk in another program: both sides of its echo are a pipe's. */
static void client_handed_on(enum way way) {
	struct server server = start_server(FORKING, 1, echo, 3000);
	int fd = connect_to_server(&server), there[2], back[2];
	must("pipe", pipe(there));
	must("pipe", pipe(back));
	pid_t children[2];
	for (int direction = 0; direction < 2; direction++)
		if (!(children[direction] = (pid_t)must("fork", fork()))) {
			/* one sends what comes from the pipe, the other prints what comes back */
			dup2(direction ? fd : there[0], 0);
			dup2(direction ? back[1] : fd, 1);
			close(there[1]);
			close(back[0]);
			become(way, 0);
		}
	close(fd);
	close(there[0]);
	close(back[1]);
	must("write", write(there[1], "hello, world\n", 13));
	char text[13] = "";
	size_t got = 0;
	for (ssize_t now; got < 13 && (now = read(back[0], text + got, 13 - got)) > 0; got += (size_t)now) {
	}
	say("came back: %s", yes_no(got == 13 && !memcmp(text, "hello, world\n", 13)));
	close(there[1]);
	close(back[0]);
	for (int direction = 0; direction < 2; direction++) {
		if (direction) kill(children[1], SIGKILL);
		waitpid(children[direction], NULL, 0);
	}
	finish_child("server", server.child);
}

int main(int argc, char **argv) {
	self = realpath("/proc/self/exe", NULL);
	if (argc > 2) return be(argv[2], argc > 3 ? argv[3] : NULL);
	begin(argc, argv);
	beside = malloc(strlen(self) + 20);
	strcpy(beside, self);
	strcpy(strrchr(beside, '/') + 1, "forking_static");
	for (enum way way = SAME; way < WAYS; way++) {
		say("%s", names[way]);
		through(way);
	}
	say("a listener");
	listener_handed_on();
	say("a client's socket, to two static programs");
	client_handed_on(STATIC);
	return 0;
}

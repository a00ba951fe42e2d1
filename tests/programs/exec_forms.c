/* Every way to become another program, with connections: one that fails changes nothing, whatever it is (execve(2): "On success, execve() does
 * not return"); with one that succeeds the connection ends, since it is close-on-exec, and what was sent a moment before reaches the peer.
 *
 * exec_forms ADDRESS; "exec_forms ADDRESS done" is what it becomes. */
#include "common.h"
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BYTES = 60000 };

extern char **environ;

static const char *const forms[] = {"execve",  "execv", "execvp",  "execvpe",  "execl",		  "execle",
				    "execlp", "fexecve", "execveat", "syscall", "syscall execveat"};

/* "/proc/self/exe", or what cannot be executed. */
static void become(const char *form, const char *path) {
	char *address = program_argc > 1 ? program_argv[1] : "127.0.0.1", *name = program_argv[0];
	char *arguments[] = {name, address, "done", NULL};
	int file = open(path, O_RDONLY | O_CLOEXEC);
	if (!strcmp(form, "execve")) execve(path, arguments, environ);
	if (!strcmp(form, "execv")) execv(path, arguments);
	if (!strcmp(form, "execvp")) execvp(path, arguments);
	if (!strcmp(form, "execvpe")) execvpe(path, arguments, environ);
	if (!strcmp(form, "execl")) execl(path, name, address, "done", (char *)NULL);
	if (!strcmp(form, "execle")) execle(path, name, address, "done", (char *)NULL, environ);
	if (!strcmp(form, "execlp")) execlp(path, name, address, "done", (char *)NULL);
	if (!strcmp(form, "fexecve")) fexecve(file, arguments, environ);
	if (!strcmp(form, "execveat")) execveat(AT_FDCWD, path, arguments, environ, 0);
	if (!strcmp(form, "syscall")) syscall(SYS_execve, path, arguments, environ);
	if (!strcmp(form, "syscall execveat")) syscall(SYS_execveat, file, "", arguments, environ, AT_EMPTY_PATH);
	int error = errno;
	if (file >= 0) close(file);
	errno = error;
}

static void talk(const char *what, struct pair both) {
	send_pattern(both.client, BYTES, 5000, 1);
	bool there = recv_pattern(both.server, BYTES, 5000, 1) == BYTES;
	send_pattern(both.server, BYTES, 5000, 2);
	say("%s: %s", what, yes_no(there && recv_pattern(both.client, BYTES, 5000, 2) == BYTES));
}

static void fails(const char *form) {
	static const char *const paths[] = {"/nonexistent/program", "/etc/passwd", "/dev/null/x"};
	struct pair both = new_pair();
	for (size_t i = 0; i < COUNT(paths); i++) {
		become(form, paths[i]);
		say("%s of %s: %s", form, paths[i], strerrorname_np(errno));
	}
	talk("  the connection goes on", both);
	close_pair(both);
}

/* The child has a connection of its own making with this process. (It is there before there is a listener, which it does not inherit.) */
static void succeeds(const char *form) {
	int gate[2], status;
	must("pipe", pipe2(gate, O_CLOEXEC));
	fflush(stdout);
	pid_t child = (pid_t)must("fork", fork());
	if (!child) {
		struct address name;
		must("read", read(gate[0], &name, sizeof name));
		int fd = new_socket(SOCK_CLOEXEC);
		must("connect", connect_to(fd, name));
		send_pattern(fd, BYTES, 5000, 1);
		become(form, "/proc/self/exe");
		_exit(9);
	}
	int listener = new_listener(SOCK_CLOEXEC, 4);
	struct address name = name_of(listener);
	must("write", write(gate[1], &name, sizeof name));
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	must("waitpid", waitpid(child, &status, 0));
	say("%s: status %d, what was sent before is there: %s", form, status, yes_no(recv_pattern(fd, BYTES, 5000, 1) == BYTES));
	char byte;
	ssize_t last = recv(fd, &byte, 1, 0);
	/* A peer that ends without closing may be taken for one that was killed. */
	say("  then: %s", last == 0 || (last < 0 && errno == ECONNRESET) ? "the end" : "something else");
	close(fd);
	close(listener);
	close(gate[0]);
	close(gate[1]);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 2 && !strcmp(argv[2], "done")) return 0;
	for (size_t i = 0; i < COUNT(forms); i++) fails(forms[i]);
	for (size_t i = 0; i < COUNT(forms); i++) succeeds(forms[i]);
	return 0;
}

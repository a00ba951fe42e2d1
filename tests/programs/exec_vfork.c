/* A program that listens, and leaves it to one that it starts without fork to accept: by vfork(2) and exec, or posix_spawn(3), with the descriptor
 * as it is or as a duplicate. The parent holds its listener and does nothing there.
 *
 * exec_vfork ADDRESS; "exec_vfork ADDRESS serve NUMBER" is what it starts. */
#include "common.h"
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BYTES = 50000, OTHER = 77 };

extern char **environ;

static struct address target;

static void *client(void *context) {
	(void)context;
	int fd = new_socket(SOCK_CLOEXEC);
	must("connect", connect_to(fd, target));
	send_pattern(fd, BYTES, 3000, 5);
	say("  the answer: %s", yes_no(recv_pattern(fd, BYTES, 4000, 6) == BYTES));
	close(fd);
	return NULL;
}

static void serve(int listener) {
	target = name_of(listener);
	struct pollfd one = {.fd = listener, .events = POLLIN};
	report("  nobody yet", poll(&one, 1, 0));
	pthread_t thread = start_thread(client, NULL);
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	say("  received %s", recv_pattern(fd, BYTES, 4000, 5) == BYTES ? "all" : "less");
	send_pattern(fd, BYTES, 2000, 6);
	close(fd);
	pthread_join(thread, NULL);
}

enum form { EXECV, EXECL, EXECLP, EXECLE, EXECVE, EXECVP, EXECVPE, FEXECVE, EXECVEAT, RAW, CLEARED, DUPLICATE, DUPLICATE3, DUPLICATE_FROM, SPAWNED, FORMS };
static const char *const names[] = {"execv",	"execl",	      "execlp", "execle",  "execve",	      "execvp", "execvpe", "fexecve", "execveat", "syscall",
				    "FD_CLOEXEC taken off", "dup2", "dup3",   "F_DUPFD", "posix_spawn"};

static void start(enum form form, int listener) {
	const char *path = "/proc/self/exe";
	char number[16], *arguments[] = {program_argv[0], program_argc > 1 ? program_argv[1] : "127.0.0.1", "serve", number, NULL};
	snprintf(number, sizeof number, "%d", form > CLEARED ? OTHER : listener);
	int file = (int)must("open", open(path, O_RDONLY | O_CLOEXEC)), status;
	pid_t child;
	if (form == SPAWNED) {
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_adddup2(&actions, listener, OTHER);
		errno = posix_spawn(&child, path, &actions, NULL, arguments, environ);
		if (errno) die("posix_spawn");
		posix_spawn_file_actions_destroy(&actions);
	} else if (!(child = vfork())) {
		if (form == DUPLICATE) dup2(listener, OTHER);
		if (form == DUPLICATE3) dup3(listener, OTHER, 0);
		if (form == DUPLICATE_FROM) fcntl(listener, F_DUPFD, OTHER);
		if (form == CLEARED) fcntl(listener, F_SETFD, 0);
		if (form == EXECL) execl(path, arguments[0], arguments[1], arguments[2], arguments[3], (char *)NULL);
		if (form == EXECLP) execlp(path, arguments[0], arguments[1], arguments[2], arguments[3], (char *)NULL);
		if (form == EXECLE) execle(path, arguments[0], arguments[1], arguments[2], arguments[3], (char *)NULL, environ);
		if (form == EXECVE) execve(path, arguments, environ);
		if (form == EXECVP) execvp(path, arguments);
		if (form == EXECVPE) execvpe(path, arguments, environ);
		if (form == FEXECVE) fexecve(file, arguments, environ);
		if (form == EXECVEAT) execveat(file, "", arguments, environ, AT_EMPTY_PATH);
		if (form == RAW) syscall(SYS_execve, path, arguments, environ);
		execv(path, arguments);
		_exit(9);
	}
	must("waitpid", waitpid(child, &status, 0));
	say("  status %d", status);
	close(file);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 3 && !strcmp(argv[2], "serve")) return serve((int)argument(2, -1)), 0;
	for (enum form form = EXECV; form < FORMS; form++) {
		say("%s", names[form]);
		int listener = new_listener(form >= CLEARED ? SOCK_CLOEXEC : 0, 8);
		/* It has had a client, and has not read from it. */
		struct pair both = connect_pair(listener);
		send_all(both.client, "x", 1);
		close_pair(both);
		start(form, listener);
		close(listener);
	}
	return 0;
}

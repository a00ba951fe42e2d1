/* Clients that leave what they have connected to another program, which they start with fork and without: by vfork(2) and exec, posix_spawn(3) with
 * the descriptor as it is or as a duplicate, system(3), popen(3). They keep their copy, and do nothing with it meanwhile.
 *
 * deferred_spawn ADDRESS; "deferred_spawn ADDRESS talk NUMBER" is what it starts. */
#include "deferred.h"
#include <spawn.h>

extern char **environ;

enum { OTHER = 77 };

enum way { FORK, VFORK, VFORK_LIST, VFORK_DUPLICATE, VFORK_CLEARED, SPAWN, SPAWN_DUPLICATE, SYSTEM, POPEN, WAYS };
static const char *const way_names[] = {"fork",	       "vfork",		      "vfork and execl", "vfork and dup2", "vfork and FD_CLOEXEC taken off",
					"posix_spawn", "posix_spawn, adddup2", "system",	  "popen"};

static const char *path = "/proc/self/exe";
static char own_path[PATH_MAX];
static char number[16], *arguments[] = {"deferred_spawn", NULL, "talk", number, NULL};

static pid_t spawn(int fd, bool duplicate) {
	pid_t child = 0;
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	if (duplicate) posix_spawn_file_actions_adddup2(&actions, fd, OTHER);
	errno = posix_spawn(&child, path, &actions, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	posix_spawn_file_actions_destroy(&actions);
	return child;
}

static void by_a_shell(enum way way) {
	char line[PATH_MAX + 100], text[100];
	snprintf(line, sizeof line, "exec %s %s talk %s", own_path, arguments[1], number);
	if (way == SYSTEM) {
		report("  system", system(line));
		return;
	}
	FILE *pipe = popen(line, "r");
	while (pipe && fgets(text, sizeof text, pipe)) fputs(text, stdout);
	report("  pclose", pclose(pipe));
}

static void start(enum way way, int fd) {
	pid_t child;
	fflush(stdout);
	if (way >= SYSTEM) {
		by_a_shell(way);
		return;
	}
	if (way == SPAWN || way == SPAWN_DUPLICATE)
		child = spawn(fd, way == SPAWN_DUPLICATE);
	else if (!(child = way == FORK ? fork() : vfork())) {
		if (way == VFORK_DUPLICATE) dup2(fd, OTHER);
		if (way == VFORK_CLEARED) fcntl(fd, F_SETFD, 0);
		if (way == VFORK_LIST) execl(path, arguments[0], arguments[1], arguments[2], arguments[3], (char *)NULL);
		execv(path, arguments);
		_exit(9);
	}
	int status = -1;
	must("waitpid", waitpid(child, &status, 0));
	say("  status %d", status);
}

/* What nobody else has goes its way. */
static void ask(int fd, long piece) { say("own: %lu", through_echo(fd, 200000, (size_t)piece)); }

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 3 && !strcmp(argv[2], "talk")) {
		say("  %lu", through_echo((int)argument(2, -1), 200000, 9000));
		return 0;
	}
	must("readlink", readlink("/proc/self/exe", own_path, sizeof own_path - 1));
	arguments[1] = argc > 1 ? argv[1] : "127.0.0.1";
	talk(FORKING, echo, ask, 5000);
	for (enum style style = OWN; style < PREFORK; style++)
		for (enum way way = FORK; way < WAYS; way++) {
			say("%s: %s", style_names[style], way_names[way]);
			struct server server = start_server(style, 1, echo, 5000);
			bool given = way == VFORK_DUPLICATE || way == VFORK_CLEARED || way == SPAWN_DUPLICATE;
			int fd = new_socket(given ? SOCK_CLOEXEC : 0);
			must("connect", connect_to(fd, server.address));
			snprintf(number, sizeof number, "%d", given && way != VFORK_CLEARED ? OTHER : fd);
			start(way, fd);
			close(fd);
			finish_child("server", server.child);
		}
	return 0;
}

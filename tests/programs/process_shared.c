/* A program that serves its clients, and starts others for some errand in every way there is: with fork, by vfork(2) and exec, posix_spawn(3),
 * system(3), popen(3). What its listener is then, whether the others have it or not, and whether it has served before: see tests/processes.rs.
 * All clients are served. */
#include "process.h"
#include <spawn.h>

extern char **environ;

enum way { FORK, VFORK, VFORK_LIST, SPAWN, SYSTEM, POPEN, WAYS };
static const char *const way_names[] = {"fork", "vfork", "vfork and execl", "posix_spawn", "system", "popen"};

static void start(enum way way) {
	char *arguments[] = {"true", NULL};
	int status = -1;
	pid_t child = 0;
	if (way == SYSTEM) status = system("true");
	if (way == POPEN) status = pclose(popen("true", "r"));
	if (way == SPAWN && (errno = posix_spawn(&child, "/bin/true", NULL, NULL, arguments, environ))) die("posix_spawn");
	if (way == FORK && !(child = fork())) _exit(execv("/bin/true", arguments));
	if (way == VFORK && !(child = vfork())) _exit(execv("/bin/true", arguments));
	if (way == VFORK_LIST && !(child = vfork())) _exit(execl("/bin/true", "true", (char *)NULL));
	if (child) must("waitpid", waitpid(child, &status, 0));
	if (status) say("status %d", status);
}

/* A client of this process's own, after a look at the listener, as programs take it that wait for clients. */
static bool serves(int listener, unsigned seed) {
	struct pollfd one = {.fd = listener, .events = POLLIN};
	must("poll", poll(&one, 1, 0));
	struct pair both = connect_pair(listener);
	bool good = moves(both, seed);
	close_pair(both);
	return good;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (enum way way = FORK; way < WAYS; way++)
		for (int served = 0; served < 2; served++)
			for (int kept = 0; kept < 2; kept++) {
				int listener = new_listener(kept ? 0 : SOCK_CLOEXEC, 8);
				bool before = !served || serves(listener, 1);
				start(way);
				bool after = serves(listener, 3), again = serves(listener, 5);
				say("%s%s%s: %s", way_names[way], served ? ", served" : "", kept ? ", has it" : "", yes_no(before && after && again));
				close(listener);
			}
	return 0;
}

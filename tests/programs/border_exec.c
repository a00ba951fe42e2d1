/* What a program finds of its predecessor's sockets after exec: execve(2), "By default, file descriptors remain open across an execve()"
 * with those apart that are close-on-exec, and mappings are not preserved. All of this program's own are close-on-exec, so nothing may
 * be left: no socket, no memfd, no mapping of one.
 *
 * border_exec ADDRESS exec|fork|spawn: makes connections with itself that move data, then becomes "border_exec ADDRESS look" by
 * execve, or starts it by fork and execve or by posix_spawn; that prints what it finds. Before, the same is counted here ("here: ..."). */
#include "common.h"
#include <spawn.h>
#include <sys/wait.h>

enum { PAIRS = 4, BYTES = 100000 };

extern char **environ;

static void look(const char *who) {
	int sockets = 0, memory = 0, mappings = 0;
	DIR *folder = opendir("/proc/self/fd");
	if (!folder) die("/proc/self/fd");
	for (struct dirent *entry; (entry = readdir(folder));) {
		char target[256] = "";
		if (readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1) < 0) continue;
		sockets += !strncmp(target, "socket:", 7);
		memory += !strncmp(target, "/memfd:", 7);
	}
	closedir(folder);
	FILE *file = fopen("/proc/self/maps", "r");
	if (!file) die("/proc/self/maps");
	for (char line[512]; fgets(line, sizeof line, file);) mappings += strstr(line, "/memfd:") != NULL;
	fclose(file);
	say("%s: sockets %d, memfds %d, mappings of memfds %d", who, sockets, memory, mappings);
}

static void *exchange(void *context) {
	struct pair *both = context;
	send_pattern(both->client, BYTES, 5000, 7);
	return NULL;
}

static struct pair cloexec_pair(int listener) {
	struct pair made = {.client = new_socket(SOCK_CLOEXEC)};
	must("connect", connect_to(made.client, name_of(listener)));
	made.server = (int)must("accept4", accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	return made;
}

static void finish(pid_t child) {
	int status;
	must("waitpid", waitpid(child, &status, 0));
	if (status) say("FAILED: the child's status is %d", status);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	const char *how = argc > 2 ? argv[2] : "exec";
	if (!strcmp(how, "look")) return look("after exec"), 0;

	int listener = new_listener(SOCK_CLOEXEC, 8);
	static struct pair all[PAIRS];
	for (int i = 0; i < PAIRS; i++) {
		all[i] = cloexec_pair(listener);
		pthread_t thread = start_thread(exchange, &all[i]);
		if (recv_pattern(all[i].server, BYTES, 5000, 7) != BYTES) die("pattern");
		pthread_join(thread, NULL);
	}
	look("here");

	char *arguments[] = {argv[0], argc > 1 ? argv[1] : "127.0.0.1", "look", NULL};
	if (!strcmp(how, "exec")) {
		execve("/proc/self/exe", arguments, environ);
		die("execve");
	}
	pid_t child;
	if (!strcmp(how, "spawn")) {
		errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
		if (errno) die("posix_spawn");
	} else if (!(child = (pid_t)must("fork", fork()))) {
		execve("/proc/self/exe", arguments, environ);
		_exit(9);
	}
	finish(child);
	/* the connections of this process go on */
	send_all(all[0].client, "x", 1);
	char byte;
	if (recv_all(all[0].server, &byte, 1) != 1) die("afterwards");
	say("afterwards: they go on");
	return 0;
}

/* Ten threads are busy on sockets, others are open, and the process ends: its status is the program's, no thread sees an error
 * meanwhile, and nothing waits. Cases B36, B48.
 *
 * exit_threads ADDRESS [OPEN]; for the process that ends it runs itself: exit_threads ADDRESS WAY OPEN */
#include "common.h"

#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* The end may wait 3 s for the device. */
enum { BUSY = 10, OPEN = 50, BUSY_MS = 100, SECONDS = 8, TELL = 4 };

extern char **environ;

static volatile bool ending;
static bool with_poll;

/* One end sends to the other all the time. A call that fails is told (by its status), as a program may do that stops then. */
static void *is_busy(void *context) {
	struct pair *both = context;
	char text[512];
	while (!ending) {
		if (with_poll) {
			struct pollfd one = {.fd = both->client, .events = POLLOUT};
			if (poll(&one, 1, -1) != 1 || one.revents != POLLOUT) _exit(71);
		}
		if (send(both->client, "0123456789", 10, MSG_NOSIGNAL) != 10) _exit(72);
		if (recv(both->server, text, 10, MSG_WAITALL) != 10) _exit(73);
	}
	return NULL;
}

static void *sleeps(void *context) {
	struct pair *both = context;
	char byte;
	ssize_t got = recv(both->server, &byte, 1, 0);
	(void)got;
	_exit(74);
}

static void crash(void) { *(volatile int *)(uintptr_t)argument(9, 0) = 1; }

static const char *const names[] = {"exit",  "_exit",	   "return", "pthread_exit", "abort", "quick_exit",
				    "crash", "_exit in a thread", "SIGTERM"};

static void *leaves(void *context) { (void)context, _exit(7); }

static int leave(long way, size_t open) {
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	static struct pair pairs[BUSY + OPEN];
	int listener = new_listener(0, 200);
	size_t all = BUSY + 1 + (open < OPEN ? open : OPEN - 1);
	for (size_t i = 0; i < all; i++) pairs[i] = connect_pair(listener);
	with_poll = way % 2;
	for (int i = 0; i < BUSY; i++) start_thread(is_busy, &pairs[i]);
	if (way != 3) start_thread(sleeps, &pairs[BUSY]);
	sleep_ms(BUSY_MS);
	for (size_t i = BUSY + 1; i < all; i++) send_all(pairs[i].client, "rest", 4);
	int64_t now = now_us();
	must("write", write(TELL, &now, sizeof now));
	switch (way) {
	case 0: exit(3);
	case 1: _exit(4);
	case 2: return 5;
	case 3: ending = true; pthread_exit(NULL);
	case 4: abort();
	case 5: quick_exit(6);
	case 6: crash(); break;
	case 7: start_thread(leaves, NULL), pause(); break;
	case 8: raise(SIGTERM);
	}
	return 99;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 3) return leave(argument(1, 0), (size_t)argument(2, 0));
	for (size_t way = 0; way < COUNT(names); way++) {
		char number[24], open[24];
		snprintf(number, sizeof number, "%zu", way);
		snprintf(open, sizeof open, "%ld", argument(1, OPEN));
		char *arguments[] = {argv[0], argc > 1 ? argv[1] : "127.0.0.1", number, open, NULL};
		pid_t child;
		int told[2];
		must("pipe2", pipe2(told, O_CLOEXEC));
		posix_spawn_file_actions_t files;
		posix_spawn_file_actions_init(&files);
		posix_spawn_file_actions_adddup2(&files, told[1], 104);
		posix_spawn_file_actions_adddup2(&files, 104, TELL);
		posix_spawn_file_actions_addclosefrom_np(&files, TELL + 1);
		errno = posix_spawn(&child, "/proc/self/exe", &files, NULL, arguments, environ);
		if (errno) die("posix_spawn");
		close(told[1]);
		int status = -1;
		int64_t start = 0;
		must("waitpid", waitpid(child, &status, 0));
		int64_t end = now_us();
		if (read(told[0], &start, sizeof start) != sizeof start) say("  FAILED before the end");
		close(told[0]);
		if (WIFSIGNALED(status))
			say("%s: killed by %s", names[way], sigabbrev_np(WTERMSIG(status)));
		else
			say("%s: exit status %d", names[way], WEXITSTATUS(status));
		if (end - start > SECONDS * 1000000) say("  FAILED: it took %d s", (int)((end - start) / 1000000));
	}
	/* so that this process has a connection too */
	struct pair both = new_pair();
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	close_pair(both);
	return 0;
}

/* Whatever way a process ends, what it has sent before arrives, whole and with the end that the kernel gives it, and the exit status is
 * the program's: exit(3), _exit(2), quick_exit(3), pthread_exit(3), raw system calls, signals; exit handlers and destructors may still send.
 * Cases B36, B48.
 *
 * exit_ways ADDRESS [BYTES [SIGNALS]]: BYTES instead of two sizes; SIGNALS 0: only where the process ends itself. For the end that leaves it
 * runs itself: exit_ways ADDRESS PORT WAY BYTES */
// needs: exit_plugin
#include "common.h"

#include <dlfcn.h>
#include <libgen.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* LARGE is more than a receive buffer: a part of it is still here when the process ends. */
enum { SMALL = 1000, LARGE = 200000, LATE_MS = 100, SEED = 5 };

static int fd = -1;

extern char **environ;

static void on_signal_leave_raw(int number) { _exit(number); }
static void on_signal_exit(int number) { exit(number); }

static void *thread_underscore(void *context) { (void)context, _exit(6); }
static void *thread_ends_late(void *context) {
	(void)context;
	sleep_ms(LATE_MS);
	send_all(fd, "thread ", 7);
	return NULL;
}
static void *thread_exits_late(void *context) {
	(void)context;
	sleep_ms(LATE_MS);
	send_all(fd, "thread ", 7);
	pthread_exit(NULL);
}
static void *thread_calls_exit(void *context) {
	(void)context;
	sleep_ms(LATE_MS);
	exit(7);
}

static void says_first(void) { send_all(fd, "first ", 6); }
static void says_last(void) { send_all(fd, "last ", 5); }

/* Which way, what it is called, and what is to be there before the connection. */
static void way_exit(void) { exit(3); }
static void way_underscore(void) { _exit(4); }
static void way_capital(void) { _Exit(5); }
static void way_quick(void) { quick_exit(6); }
static void way_group(void) { syscall(SYS_exit_group, 7); }
static void way_raw_thread(void) { syscall(SYS_exit, 8); }
static void way_in_thread(void) {
	start_thread(thread_underscore, NULL);
	for (;;) pause();
}
static void way_pthread_exit(void) { pthread_exit(NULL); }
static void way_main_first(void) {
	start_thread(thread_ends_late, NULL);
	pthread_exit(NULL);
}
static void way_main_first_2(void) {
	start_thread(thread_exits_late, NULL);
	pthread_exit(NULL);
}
static void way_main_first_exit(void) {
	start_thread(thread_calls_exit, NULL);
	pthread_exit(NULL);
}
static void way_handler_raw(void) {
	signal(SIGUSR1, on_signal_leave_raw);
	raise(SIGUSR1);
}
static void way_handler_exit(void) {
	signal(SIGUSR1, on_signal_exit);
	raise(SIGUSR1);
}
static void way_at_exit(void) {
	atexit(says_first);
	exit(9);
}
static void way_at_quick_exit(void) {
	at_quick_exit(says_first);
	quick_exit(10);
}
static void way_plugin(void) {
	char path[PATH_MAX] = "", plugin[PATH_MAX + 16];
	must("readlink", readlink("/proc/self/exe", path, sizeof path - 1));
	snprintf(plugin, sizeof plugin, "%s/exit_plugin", dirname(path));
	void *library = dlopen(plugin, RTLD_NOW);
	if (!library) say("FAILED %s", dlerror()), exit(1);
	*(int *)dlsym(library, "exit_plugin_socket") = fd;
	exit(11);
}
static void way_kill(void) { kill(getpid(), SIGKILL); }
static void way_term(void) { raise(SIGTERM); }
static void way_abort(void) { abort(); }
static void way_crash(void) { *(volatile int *)(uintptr_t)argument(9, 0) = 1; }
static void way_close_kill(void) { close(fd), way_kill(); }
static void way_close_term(void) { close(fd), way_term(); }
static void way_close_raw(void) { close(fd), _exit(12); }
static void way_shut_kill(void) { shutdown(fd, SHUT_WR), way_kill(); }
static void way_return(void) {}
/* the child's ends leave the parent's connection alone */
static void way_fork(void (*leave)(int)) {
	pid_t child = (pid_t)must("fork", fork());
	if (!child) leave(20);
	int status;
	must("waitpid", waitpid(child, &status, 0));
	sleep_ms(LATE_MS);
	send_all(fd, WEXITSTATUS(status) == 20 ? "parent " : "status ", 7);
	exit(13);
}
static void way_fork_raw(void) { way_fork(_exit); }
static void way_fork_exit(void) { way_fork(exit); }
static void way_vfork(void) {
	pid_t child = vfork();
	if (!child) _exit(20);
	int status;
	must("waitpid", waitpid(child, &status, 0));
	sleep_ms(LATE_MS);
	send_all(fd, WEXITSTATUS(status) == 20 ? "parent " : "status ", 7);
	exit(13);
}

static const struct {
	const char *name;
	void (*leave)(void);
	const char *more; /* what comes behind the pattern */
	bool before;	  /* handlers are there before the first socket */
	bool killed;
} ways[] = {
    {"return", way_return, "", false, false},
    {"exit", way_exit, "", false, false},
    {"_exit", way_underscore, "", false, false},
    {"_Exit", way_capital, "", false, false},
    {"quick_exit", way_quick, "", false, false},
    {"exit_group", way_group, "", false, false},
    {"the only thread's exit", way_raw_thread, "", false, false},
    {"_exit in a thread", way_in_thread, "", false, false},
    {"pthread_exit", way_pthread_exit, "", false, false},
    {"pthread_exit, a thread returns later", way_main_first, "thread ", false, false},
    {"pthread_exit, a thread too later", way_main_first_2, "thread ", false, false},
    {"pthread_exit, a thread calls exit later", way_main_first_exit, "", false, false},
    {"_exit in a signal handler", way_handler_raw, "", false, false},
    {"exit in a signal handler", way_handler_exit, "", false, false},
    {"handlers that send", way_at_exit, "first last ", true, false},
    {"quick handlers that send", way_at_quick_exit, "first last ", true, false},
    {"a destructor that sends", way_plugin, "destructor ", false, false},
    {"SIGKILL", way_kill, "", false, true},
    {"SIGTERM", way_term, "", false, true},
    {"abort", way_abort, "", false, true},
    {"a crash", way_crash, "", false, true},
    {"close, SIGKILL", way_close_kill, "", false, true},
    {"close, SIGTERM", way_close_term, "", false, true},
    {"close, _exit", way_close_raw, "", false, false},
    {"shutdown, SIGKILL", way_shut_kill, "", false, true},
    {"a fork that calls _exit", way_fork_raw, "parent ", false, false},
    {"a fork that calls exit", way_fork_exit, "parent ", false, false},
    {"a vfork that calls _exit", way_vfork, "parent ", false, false},
};

static int leave(uint16_t port, size_t way, size_t bytes) {
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	if (ways[way].before) atexit(says_last), at_quick_exit(says_last);
	struct address peer = local;
	*port_of(&peer) = htons(port);
	fd = new_socket(0);
	must("connect", connect_to(fd, peer));
	send_pattern(fd, bytes, bytes, SEED);
	ways[way].leave();
	return 0;
}

static void watch(const char *program, int listener, size_t way, size_t bytes) {
	char port[24], number[24], length[24];
	struct address name = name_of(listener);
	snprintf(port, sizeof port, "%d", ntohs(*port_of(&name)));
	snprintf(number, sizeof number, "%zu", way);
	snprintf(length, sizeof length, "%zu", bytes);
	char *arguments[] = {(char *)program, program_argc > 1 ? program_argv[1] : "127.0.0.1", port, number, length, NULL};
	pid_t child;
	errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	int peer = (int)must("accept", accept(listener, NULL, NULL));
	if (bytes > SMALL) sleep_ms(LATE_MS);
	bool whole = recv_pattern(peer, bytes, 4096, SEED) == bytes;
	char more[64] = "";
	ssize_t got, done = 0;
	while ((got = recv(peer, more + done, sizeof more - 1 - (size_t)done, 0)) > 0) done += got;
	say("%s, %zu bytes: whole %s, then '%s' and %s", ways[way].name, bytes, yes_no(whole), more,
	    got == 0 ? "end of file" : strerrorname_np(errno));
	if (strcmp(more, ways[way].more)) say("  FAILED: '%s' was to come", ways[way].more);
	int status = -1;
	must("waitpid", waitpid(child, &status, 0));
	if (WIFSIGNALED(status))
		say("  killed by %s", sigabbrev_np(WTERMSIG(status)));
	else
		say("  exit status %d", WEXITSTATUS(status));
	close(peer);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 4) return leave((uint16_t)argument(1, 0), (size_t)argument(2, 0), (size_t)argument(3, 0));
	int listener = new_listener(SOCK_CLOEXEC, 8);
	size_t bytes = (size_t)argument(1, 0);
	bool with_signals = argument(2, 1);
	for (size_t way = 0; way < COUNT(ways); way++) {
		if (ways[way].killed && !with_signals) continue;
		watch(argv[0], listener, way, bytes ? bytes : SMALL);
		if (!bytes) watch(argv[0], listener, way, LARGE);
	}
	close(listener);
	return 0;
}

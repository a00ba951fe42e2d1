/* A signal handler ends the process, at any moment: while the thread that it has interrupted sends, receives, opens or closes, and others
 * do. What was sent by then arrives, in good order, and the status is the handler's. Cases B36, B48.
 *
 * exit_handler ADDRESS [ROUNDS]; for the end that leaves it runs itself: exit_handler ADDRESS PORT WAY MICROSECONDS */
#include "common.h"

#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SEED = 9, TOLD = 4, THREADS = 3 };

extern char **environ;

static volatile uint64_t sent; /* what send has given */
static void (*volatile way)(int);

static void by_system_call(int status) { syscall(SYS_exit_group, status); }

static const struct {
	const char *name;
	void (*leave)(int);
} ways[] = {{"_exit", _exit}, {"_Exit", _Exit}, {"exit_group", by_system_call}};

static void ends(int number) {
	(void)number;
	uint64_t now = sent;
	if (write(TOLD, &now, sizeof now) == sizeof now) way(7);
}

static void *is_busy(void *context) {
	struct pair *both = context;
	char text[512];
	for (;;) {
		send_all(both->client, "0123456789", 10);
		recv_all(both->server, text, 10);
	}
	return NULL;
}

/* Connections that come and go: nobody else makes them, so that a number is never another's. */
static void *opens_and_closes(void *context) {
	int listener = *(int *)context;
	for (;;) close_pair(connect_pair(listener));
	return NULL;
}

static int leave(uint16_t port, size_t which, long microseconds) {
	way = ways[which].leave;
	struct address peer = local;
	*port_of(&peer) = htons(port);
	int fd = new_socket(0), listener = new_listener(0, 8);
	static struct pair pairs[THREADS];
	must("connect", connect_to(fd, peer));
	for (int i = 0; i < THREADS; i++) pairs[i] = connect_pair(listener);
	/* the main thread is the one that is interrupted */
	sigset_t alarm_only;
	sigemptyset(&alarm_only), sigaddset(&alarm_only, SIGALRM);
	sigprocmask(SIG_BLOCK, &alarm_only, NULL);
	for (int i = 0; i < THREADS - 1; i++) start_thread(is_busy, &pairs[i]);
	if (microseconds % 2) start_thread(opens_and_closes, &listener);
	sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
	alarm(0);
	signal(SIGALRM, ends);
	struct itimerval when = {{0, 0}, {0, microseconds}};
	must("setitimer", setitimer(ITIMER_REAL, &when, NULL));
	char text[1000];
	for (uint64_t at = 0;; at = sent) {
		fill_pattern(text, sizeof text, at, SEED);
		ssize_t done = send(fd, text, 1 + at % sizeof text, 0);
		must("send", done);
		sent = at + (uint64_t)done;
		/* on connections of its own */
		send_all(pairs[THREADS - 1].client, "0123456789", 10), recv_all(pairs[THREADS - 1].server, text, 10);
		if (microseconds % 3 == 0) close(new_socket(0));
	}
	return 0;
}

/* The child's end: whether all came that it had told of. */
static bool is_whole(const char *program, int listener, size_t which, long microseconds) {
	char port[16], number[16], time[16];
	struct address name = name_of(listener);
	snprintf(port, sizeof port, "%d", ntohs(*port_of(&name)));
	snprintf(number, sizeof number, "%zu", which);
	snprintf(time, sizeof time, "%ld", microseconds);
	char *arguments[] = {(char *)program, program_argc > 1 ? program_argv[1] : "127.0.0.1", port, number, time, NULL};
	int told[2];
	must("pipe2", pipe2(told, O_CLOEXEC));
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	posix_spawn_file_actions_adddup2(&files, told[1], 104);
	posix_spawn_file_actions_adddup2(&files, 104, TOLD);
	posix_spawn_file_actions_addclosefrom_np(&files, TOLD + 1);
	pid_t child;
	errno = posix_spawn(&child, "/proc/self/exe", &files, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	close(told[1]);
	int peer = (int)must("accept", accept(listener, NULL, NULL));
	char text[4096];
	uint64_t came = 0, all = 0;
	ssize_t got;
	bool right = true;
	while ((got = recv(peer, text, sizeof text, 0)) > 0) {
		right &= has_pattern(text, (size_t)got, came, SEED);
		came += (uint64_t)got;
	}
	int error = errno, status = -1;
	must("waitpid", waitpid(child, &status, 0));
	bool knows = read(told[0], &all, sizeof all) == sizeof all;
	close(told[0]), close(peer);
	bool good = right && knows && came >= all && got == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 7;
	if (!good)
		say("FAILED %s after %ld us: right %s, %llu of %llu came, then %s, status %x", ways[which].name, microseconds, yes_no(right),
		    (unsigned long long)came, (unsigned long long)all, got ? strerrorname_np(error) : "end of file", status);
	return good;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 4) return leave((uint16_t)argument(1, 0), (size_t)argument(2, 0), argument(3, 0));
	int listener = new_listener(SOCK_CLOEXEC, 8);
	long rounds = argument(1, 20);
	for (size_t which = 0; which < COUNT(ways); which++) {
		long whole = 0;
		for (long round = 0; round < rounds; round++) whole += is_whole(argv[0], listener, which, 1 + round * round * 37 % 30000);
		say("%s: whole %s", ways[which].name, yes_no(whole == rounds));
	}
	close(listener);
	return 0;
}

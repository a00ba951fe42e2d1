/* Children that share the parent's memory until they exec, or are made within the C library: what they close or replace stays the parent's,
 * and they get what the file actions say. posix_spawn(3): "the file actions … are performed in the child". vfork(2): "the child … shares all
 * memory with its parent". SPAWNS of them while data flows over three connections. */
#include "process.h"
#include <pty.h>
#include <spawn.h>
#include <sched.h>
#include <sys/syscall.h>
#include <wordexp.h>

extern char **environ;

#define CONNECTIONS 3

static struct pair pairs[CONNECTIONS];
static volatile bool over;

/* Counts until its connection ends; what comes back must be what went. */
static void *flow(void *context) {
	struct pair both = *(struct pair *)context;
	uint64_t rounds = 0;
	for (; !over; rounds++) {
		unsigned char bytes[600], back[600];
		fill_pattern(bytes, sizeof bytes, rounds, 3);
		send_all(both.client, bytes, sizeof bytes);
		if (recv_all(both.server, back, sizeof back) != sizeof back || memcmp(bytes, back, sizeof back)) return NULL;
		usleep(100);
	}
	return rounds > 10 ? context : NULL;
}

static size_t read_to_end(int fd, char *to, size_t most) {
	size_t done = 0;
	for (ssize_t got; done < most && (got = read(fd, to + done, most - done)) > 0;) done += (size_t)got;
	return done;
}

static int fd, other;
typedef posix_spawn_file_actions_t file_actions;

static void no_more(file_actions *to) { (void)to; }
static void closes(file_actions *to) { posix_spawn_file_actions_addclose(to, fd); }
static void opens(file_actions *to) { posix_spawn_file_actions_addopen(to, fd, "/dev/null", O_RDWR, 0); }
static void replaces(file_actions *to) { posix_spawn_file_actions_adddup2(to, other, fd); }
static void duplicates(file_actions *to) { posix_spawn_file_actions_adddup2(to, fd, 9); }
static void closes_all(file_actions *to) { posix_spawn_file_actions_addclosefrom_np(to, 3); }

/* What a shell says that is spawned with these actions, and standard output at a pipe. */
static void spawn_shell(const char *what, void (*add)(file_actions *), const char *format) {
	int ends[2], status = 0;
	char script[300], text[200] = "";
	file_actions actions;
	snprintf(script, sizeof script, format, fd);
	must("pipe", pipe2(ends, O_CLOEXEC));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	add(&actions);
	char *arguments[] = {"sh", "-c", script, NULL};
	pid_t child = 0;
	errno = posix_spawn(&child, "/bin/sh", &actions, NULL, arguments, environ);
	if (errno) die(what);
	close(ends[1]);
	text[read_to_end(ends[0], text, sizeof text - 1)] = 0;
	must("waitpid", waitpid(child, &status, 0));
	say("%s: status %d: %s", what, WEXITSTATUS(status), text);
	close(ends[0]);
	posix_spawn_file_actions_destroy(&actions);
}

static void actions(void) {
	const char *is_open = "[ -e /proc/self/fd/%d ] && echo -n open || echo -n closed", *what = "readlink -n /proc/self/fd/%d";
	fd = pairs[0].client;
	other = (int)must("open", open("/dev/zero", O_RDWR | O_CLOEXEC));
	spawn_shell("nothing", no_more, is_open);
	spawn_shell("addclose", closes, is_open);
	spawn_shell("addopen", opens, what);
	spawn_shell("adddup2 onto it", replaces, what);
	spawn_shell("adddup2 of it", duplicates, "readlink /proc/self/fd/9 | cut -c 1-7 | tr -d '\\n'");
	spawn_shell("addclosefrom_np", closes_all, is_open);
	close(other);
}

static int share_memory(void *unused) {
	(void)unused;
	/* As the shells and interpreters do between vfork and exec. */
	int null = open("/dev/null", O_RDWR);
	dup2(null, pairs[0].client);
	close(pairs[0].server);
	close(pairs[1].client);
	close_range(3, ~0u, 0);
	execl("/bin/true", "true", (char *)NULL);
	_exit(99);
}

static pid_t vforked(void) {
	pid_t child = vfork();
	if (child == 0) {
		close(pairs[0].client);
		close(pairs[2].server);
		execl("/bin/true", "true", (char *)NULL);
		_exit(99);
	}
	return child;
}

static void shared_memory(int children) {
	static char stack[1 << 16] __attribute__((aligned(16)));
	int good = 0, status = 0;
	for (int i = 0; i < children; i++) {
		pid_t child = clone(share_memory, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, NULL);
		good += waitpid(child, &status, 0) == child && status == 0;
	}
	say("clone(CLONE_VM|CLONE_VFORK): %d of %d", good, children);
	good = 0;
	for (int i = 0; i < children; i++) {
		pid_t child = vforked();
		good += waitpid(child, &status, 0) == child && status == 0;
	}
	say("vfork: %d of %d", good, children);
}

static void spawns(int children) {
	int good = 0, status = 0;
	for (int i = 0; i < children; i++) {
		posix_spawn_file_actions_t list;
		posix_spawn_file_actions_init(&list);
		posix_spawn_file_actions_addclose(&list, pairs[i % CONNECTIONS].client);
		posix_spawn_file_actions_adddup2(&list, pairs[i % CONNECTIONS].server, 0);
		char *arguments[] = {"true", NULL};
		pid_t child;
		if (posix_spawn(&child, "/bin/true", &list, NULL, arguments, environ) == 0)
			good += waitpid(child, &status, 0) == child && status == 0;
		posix_spawn_file_actions_destroy(&list);
	}
	say("posix_spawn: %d of %d", good, children);
}

static void within_libc(void) {
	char text[64] = "";
	say("system: %d", WEXITSTATUS(system("echo a | cat | grep -q a && exit 7")));
	FILE *pipe = popen("echo to the parent | tr a-z A-Z", "r");
	say("popen: %s", pipe && fgets(text, sizeof text, pipe) ? strtok(text, "\n") : "nothing");
	say("pclose: %d", pclose(pipe));
	wordexp_t words;
	say("wordexp: %d", wordexp("$(echo one two)", &words, 0));
	say("wordexp: %zu %s", words.we_wordc, words.we_wordc > 1 ? words.we_wordv[1] : "");
	wordfree(&words);
	int terminal, status = 0;
	pid_t child = forkpty(&terminal, NULL, NULL, NULL);
	if (child == 0) {
		close_pair(pairs[0]);
		_exit(own_sockets_work() ? 5 : 6);
	}
	must("waitpid", waitpid(child, &status, 0));
	say("forkpty: %d", WEXITSTATUS(status));
	close(terminal);
}

static void become_daemon(void) {
	int ends[2];
	must("pipe", pipe(ends));
	fflush(stdout);
	pid_t child = (pid_t)must("fork", fork());
	if (child == 0) {
		must("daemon", daemon(0, 0));
		close_pair(pairs[1]);
		char result = own_sockets_work() ? 'y' : 'n';
		must("write", write(ends[1], &result, 1));
		exit(0);
	}
	close(ends[1]);
	char result = '-';
	must("read", read(ends[0], &result, 1));
	say("daemon: %c", result);
	close(ends[0]);
	ended("its parent", child);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int children = (int)argument(1, 500);
	pthread_t threads[CONNECTIONS];
	for (int i = 0; i < CONNECTIONS; i++) {
		pairs[i] = new_pair();
		threads[i] = start_thread(flow, &pairs[i]);
	}
	report("a wait for children that the program has not made", wait(NULL));
	actions();
	spawns(children);
	shared_memory(children / 10);
	within_libc();
	become_daemon();
	report("no child is left", wait(NULL));
	over = true;
	int whole = 0;
	for (int i = 0; i < CONNECTIONS; i++) {
		void *result;
		pthread_join(threads[i], &result);
		whole += result != NULL;
	}
	say("connections over which data went on: %d of %d", whole, CONNECTIONS);
	return 0;
}

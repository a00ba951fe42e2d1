/* The peer is stopped, and all buffers on the way to it are full: neither close nor the end of a process waits for it, nor longer than
 * SO_LINGER says (socket(7): at exit "it always lingers in the background"); it gets all of it when it goes on. Also where it was killed.
 * Case B36.
 *
 * exit_stopped ADDRESS [SIGNALS], 0: only where the process ends itself. It runs both ends itself: exit_stopped ADDRESS take 0 0, and
 * exit_stopped ADDRESS CASE PORT */
#include "common.h"

#include <spawn.h>
#include <sys/wait.h>

enum { MOST_MS = 4500, SEED = 3, PIECE = 1000, TELL = 4, HEAR = 5 };

extern char **environ;

static const struct {
	const char *name;
	int linger; /* seconds, -1: off */
	enum { CLOSE, EXIT, UNDERSCORE, RETURN, QUICK, KILL, CLOSE_TERM } way;
	bool killed;
} cases[] = {
    {"close, exit", -1, CLOSE, false},
    {"exit", -1, EXIT, false},
    {"_exit", -1, UNDERSCORE, false},
    {"return", -1, RETURN, false},
    {"quick_exit", -1, QUICK, false},
    {"SIGKILL", -1, KILL, false},
    {"close, SIGTERM", -1, CLOSE_TERM, false},
    {"exit, linger 1", 1, EXIT, false},
    {"close, killed", -1, CLOSE, true},
    {"exit, killed", -1, EXIT, true},
    {"_exit, killed", -1, UNDERSCORE, true},
    {"close, killed, linger 1", 1, CLOSE, true},
};

static void tell(uint64_t value) { must("write", write(TELL, &value, sizeof value)); }

static void await_word(void) {
	char word;
	must("read", read(HEAR, &word, 1));
}

/* Fills what there is, says how much that was, and leaves. */
static int leave(size_t which) {
	struct address peer = local;
	*port_of(&peer) = htons((uint16_t)argument(2, 0));
	int fd = new_socket(0);
	must("connect", connect_to(fd, peer));
	await_word();
	struct linger value = {cases[which].linger >= 0, cases[which].linger};
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
	char piece[PIECE];
	uint64_t done = 0;
	/* the kernel, or a device, takes some more after a while */
	for (int idle = 0; idle < 10;) {
		fill_pattern(piece, sizeof piece, done, SEED);
		ssize_t sent = send(fd, piece, sizeof piece, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0)
			done += (uint64_t)sent, idle = 0;
		else
			idle++, sleep_ms(5);
	}
	tell(done);
	await_word();
	switch (cases[which].way) {
	case CLOSE: must("close", close(fd)); exit(3);
	case EXIT: exit(3);
	case UNDERSCORE: _exit(3);
	case RETURN: return 3;
	case QUICK: quick_exit(3);
	case KILL: kill(getpid(), SIGKILL); break;
	case CLOSE_TERM: close(fd), raise(SIGTERM);
	}
	return 9;
}

/* Tells its port, accepts, and does nothing until the word comes; then it reads all, and tells how much was right. */
static int take(void) {
	int listener = new_listener(0, 1);
	struct address name = name_of(listener);
	tell(ntohs(*port_of(&name)));
	int peer = (int)must("accept", accept(listener, NULL, NULL));
	tell(0);
	await_word();
	char piece[4096];
	uint64_t done = 0;
	ssize_t got;
	while ((got = recv(peer, piece, sizeof piece, 0)) > 0 && has_pattern(piece, (size_t)got, done, SEED)) done += (uint64_t)got;
	tell(done);
	tell(got < 0 ? (uint64_t)errno : (uint64_t)got);
	return 0;
}

struct end {
	pid_t process;
	int tell, hear;
};

static struct end begin_end(char **arguments) {
	int down[2], up[2];
	must("pipe2", pipe2(down, O_CLOEXEC)), must("pipe2", pipe2(up, O_CLOEXEC));
	posix_spawn_file_actions_t files;
	posix_spawn_file_actions_init(&files);
	/* by way of others: one of the pipes may have these numbers */
	posix_spawn_file_actions_adddup2(&files, up[1], 104);
	posix_spawn_file_actions_adddup2(&files, down[0], 105);
	posix_spawn_file_actions_adddup2(&files, 104, TELL);
	posix_spawn_file_actions_adddup2(&files, 105, HEAR);
	posix_spawn_file_actions_addclosefrom_np(&files, HEAR + 1);
	struct end made = {.tell = down[1], .hear = up[0]};
	errno = posix_spawn(&made.process, "/proc/self/exe", &files, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	close(down[0]), close(up[1]);
	return made;
}

static uint64_t hears(struct end *from) {
	uint64_t value;
	if (read(from->hear, &value, sizeof value) != sizeof value) die("an end is gone");
	return value;
}

static void word(struct end *to) { must("write", write(to->tell, "x", 1)); }

static void over(struct end *end) { close(end->tell), close(end->hear); }

static void watch(size_t which) {
	char *address = program_argc > 1 ? program_argv[1] : "127.0.0.1", number[16], port[16];
	struct end taker = begin_end((char *[]){program_argv[0], address, "take", "0", "0", NULL});
	snprintf(number, sizeof number, "%zu", which);
	snprintf(port, sizeof port, "%d", (int)hears(&taker));
	struct end leaver = begin_end((char *[]){program_argv[0], address, number, port, NULL});
	hears(&taker);
	must("kill", kill(taker.process, SIGSTOP));
	word(&leaver);
	uint64_t sent = hears(&leaver);
	if (cases[which].killed) must("kill", kill(taker.process, SIGKILL));
	int64_t start = now_us();
	word(&leaver);
	int status = -1;
	must("waitpid", waitpid(leaver.process, &status, 0));
	int64_t took = (now_us() - start) / 1000;
	if (WIFSIGNALED(status))
		say("%s: killed by %s", cases[which].name, sigabbrev_np(WTERMSIG(status)));
	else
		say("%s: exit status %d", cases[which].name, WEXITSTATUS(status));
	if (took > MOST_MS) say("  FAILED: it took %d ms", (int)took);
	if (getenv("EXIT_STOPPED_TIMES")) fprintf(stderr, "%s: %d ms\n", cases[which].name, (int)took);
	if (!cases[which].killed) {
		must("kill", kill(taker.process, SIGCONT));
		word(&taker);
		uint64_t came = hears(&taker), error = hears(&taker);
		say("  all has come: %s, then %s", yes_no(came == sent), error ? strerrorname_np((int)error) : "end of file");
	}
	must("waitpid", waitpid(taker.process, &status, 0));
	over(&taker), over(&leaver);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc == 5) return take();
	if (argc == 4) return leave((size_t)argument(1, 0));
	bool with_signals = argument(1, 1);
	for (size_t which = 0; which < COUNT(cases); which++)
		if (with_signals || (cases[which].way != KILL && cases[which].way != CLOSE_TERM)) watch(which);
	/* so that this process has a connection too */
	struct pair both = new_pair();
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	close_pair(both);
	return 0;
}

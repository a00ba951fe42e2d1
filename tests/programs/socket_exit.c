/* What a process has sent before it ends arrives, whole and with the end of file behind it, though the peer accepts or reads later:
 * close(2), shutdown(2), exit(3), and returning from main.
 *
 * socket_exit ADDRESS; for the end that leaves it runs itself: socket_exit ADDRESS PORT WAY BYTES */
#include "common.h"

#include <spawn.h>
#include <sys/wait.h>

/* LARGE is more than a receive buffer: a part of it is still here when the process ends. */
enum { SMALL = 1000, LARGE = 200000, LATE_MS = 300 };

enum way { CLOSE_EXIT, CLOSE_RETURN, SHUT_EXIT, EXIT, RETURN, THREAD_EXIT, WAYS };

static const char *const names[WAYS] = {"close, then exit", "close, then return", "shutdown, then exit", "exit", "return",
					"exit in a thread"};

extern char **environ;

static void *exit_here(void *context) {
	(void)context;
	exit(0);
}

static int leave(uint16_t port, enum way way, size_t bytes) {
	struct address peer = local;
	*port_of(&peer) = htons(port);
	int fd = new_socket(0);
	must("connect", connect_to(fd, peer));
	send_pattern(fd, bytes, bytes, way);
	if (way == CLOSE_EXIT || way == CLOSE_RETURN) must("close", close(fd));
	if (way == SHUT_EXIT) must("shutdown", shutdown(fd, SHUT_WR));
	if (way == CLOSE_EXIT || way == SHUT_EXIT || way == EXIT) exit(0);
	if (way == THREAD_EXIT) {
		start_thread(exit_here, NULL);
		pause();
	}
	return 0;
}

static void watch(const char *program, int listener, enum way way, size_t bytes, bool accepts_late) {
	char port[16], number[16], length[16];
	struct address name = name_of(listener);
	snprintf(port, sizeof port, "%d", ntohs(*port_of(&name)));
	snprintf(number, sizeof number, "%d", way);
	snprintf(length, sizeof length, "%zu", bytes);
	char *arguments[] = {(char *)program, program_argc > 1 ? program_argv[1] : "127.0.0.1", port, number, length, NULL};
	pid_t child;
	errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	if (accepts_late) wait_for(listener, POLLIN), sleep_ms(LATE_MS);
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	if (!accepts_late) sleep_ms(LATE_MS);
	bool whole = recv_pattern(fd, bytes, 4096, way) == bytes;
	char more;
	ssize_t end = recv(fd, &more, 1, 0);
	say("%s, %zu bytes: whole %s, then %s", names[way], bytes, yes_no(whole),
	    end == 0 ? "end of file" : end > 0 ? "more" : strerrorname_np(errno));
	int status = -1;
	must("waitpid", waitpid(child, &status, 0));
	say("  exit status %d", status);
	close(fd);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 4) return leave((uint16_t)argument(1, 0), (enum way)argument(2, 0), (size_t)argument(3, 0));
	int listener = new_listener(SOCK_CLOEXEC, 8);
	for (enum way way = 0; way < WAYS; way++) {
		watch(argv[0], listener, way, SMALL, true);
		watch(argv[0], listener, way, LARGE, false);
	}
	close(listener);
	return 0;
}

/* socket(7), SO_LINGER, at the end of a process: with a time of 0 the connection is reset, as is one that nobody has accepted; with a longer
 * one, or off, the peer gets what was sent and the end of file..
 *
 * exit_linger ADDRESS; for the end that leaves it runs itself: exit_linger ADDRESS PORT CASE */
#include "common.h"

#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

static const struct {
	const char *name;
	int on, seconds;
	void (*leave)(int);
	bool listens; /* it is the server, and accepts nobody */
} cases[] = {
    {"off, exit", 0, 0, exit, false},	      {"off, _exit", 0, 0, _exit, false},
    {"5 seconds, exit", 1, 5, exit, false},   {"5 seconds, _exit", 1, 5, _exit, false},
    {"0 seconds, exit", 1, 0, exit, false},   {"0 seconds, _exit", 1, 0, _exit, false},
    {"0 seconds, quick_exit", 1, 0, quick_exit, false},
    {"not accepted, exit", 0, 0, exit, true}, {"not accepted, _exit", 0, 0, _exit, true},
};

static int leave(uint16_t port, size_t which) {
	struct address peer = local;
	*port_of(&peer) = htons(port);
	int fd = new_socket(0);
	must("connect", connect_to(fd, peer));
	if (cases[which].listens) {
		int listener = new_listener(0, 4);
		struct address name = name_of(listener);
		send_all(fd, port_of(&name), sizeof(in_port_t));
		/* until somebody has come */
		wait_for(listener, POLLIN);
		char byte;
		recv_all(fd, &byte, 1);
		cases[which].leave(7);
	}
	struct linger value = {cases[which].on, cases[which].seconds};
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
	send_all(fd, "0123456789", 10);
	char byte;
	recv_all(fd, &byte, 1);
	cases[which].leave(7);
	return 9;
}

static void end_of(const char *what, int fd) {
	char text[16];
	ssize_t got = recv(fd, text, sizeof text, 0);
	say("  %s: %s", what, got < 0 ? strerrorname_np(errno) : got ? "data" : "end of file");
}

static void watch(const char *program, int listener, size_t which) {
	char port[16], number[16], text[16];
	struct address name = name_of(listener);
	snprintf(port, sizeof port, "%d", ntohs(*port_of(&name)));
	snprintf(number, sizeof number, "%zu", which);
	char *arguments[] = {(char *)program, program_argc > 1 ? program_argv[1] : "127.0.0.1", port, number, NULL};
	pid_t child;
	errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
	if (errno) die("posix_spawn");
	int peer = (int)must("accept", accept(listener, NULL, NULL)), other = -1;
	if (cases[which].listens) {
		struct address where = local;
		recv_all(peer, port_of(&where), sizeof(in_port_t));
		other = new_socket(0);
		must("connect", connect_to(other, where));
		send_all(other, "never taken", 11);
	} else {
		wait_bytes(peer, 10);
	}
	send_all(peer, "x", 1);
	int status;
	must("waitpid", waitpid(child, &status, 0));
	say("%s: exit status %d", cases[which].name, WEXITSTATUS(status));
	if (cases[which].listens) {
		wait_for(other, POLLRDHUP);
		end_of("who was not accepted", other);
		end_of("then", other);
		close(other);
	} else if (cases[which].on && !cases[which].seconds) {
		wait_for(peer, POLLHUP);
		end_of("reset", peer), end_of("then", peer), end_of("then", peer);
	} else {
		wait_for(peer, POLLRDHUP);
		report("  recv", recv(peer, text, sizeof text, 0));
		end_of("end", peer);
	}
	close(peer);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 3) return leave((uint16_t)argument(1, 0), (size_t)argument(2, 0));
	int listener = new_listener(SOCK_CLOEXEC, 8);
	for (size_t which = 0; which < COUNT(cases); which++) watch(argv[0], listener, which);
	close(listener);
	return 0;
}

/* A connection that a program keeps over exec, with what is on its way: over TCP it is the new program's. Over a fabric it ends: the peer has
 * what was sent before, then the end, and the new program a socket whose calls fail at once.
 *
 * exec_kept ADDRESS preloaded|plain: what the new program is. Prints what both ends see. */
#include "common.h"
#include <sys/wait.h>

enum { BYTES = 200000 };

static void look(int fd) {
	char byte;
	struct sockaddr_storage peer;
	socklen_t length = sizeof peer;
	report("getpeername", getpeername(fd, (struct sockaddr *)&peer, &length));
	report("send", send(fd, "x", 1, MSG_NOSIGNAL));
	report("recv", recv(fd, &byte, 1, 0));
	report("read", read(fd, &byte, 1));
	report_socket_error("afterwards", fd);
	struct pollfd one = {.fd = fd, .events = ALL_EVENTS};
	report("poll", poll(&one, 1, 10000));
	say("events: %s", event_names(one.revents));
	report("shutdown", shutdown(fd, SHUT_RDWR));
	report("close", close(fd));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 3 && !strcmp(argv[2], "look")) return look(atoi(argv[3])), 0;

	int gate[2], status;
	must("pipe", pipe2(gate, O_CLOEXEC));
	pid_t child = (pid_t)must("fork", fork());
	if (!child) {
		struct address name;
		must("read", read(gate[0], &name, sizeof name));
		int fd = new_socket(0);
		must("connect", connect_to(fd, name));
		send_pattern(fd, BYTES, 5000, 1);
		char number[16], *arguments[] = {argv[0], argv[1], "look", number, NULL};
		snprintf(number, sizeof number, "%d", fd);
		if (argc > 2 && !strcmp(argv[2], "plain")) unsetenv("LD_PRELOAD");
		execv("/proc/self/exe", arguments);
		_exit(9);
	}
	int listener = new_listener(SOCK_CLOEXEC, 4);
	struct address name = name_of(listener);
	must("write", write(gate[1], &name, sizeof name));
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	must("waitpid", waitpid(child, &status, 0));
	say("status %d", status);
	say("the peer has received %s", recv_pattern(fd, BYTES, 5000, 1) == BYTES ? "all" : "less");
	char byte;
	ssize_t last = recv(fd, &byte, 1, 0);
	say("then %s", last == 0 || (last < 0 && errno == ECONNRESET) ? "the end" : "something else");
	return 0;
}

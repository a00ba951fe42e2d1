/* A client gives its connection to another program, which is under the library, too: by exec, or over a Unix socket. It is the same connection for
 * the server, which listens on the fabrics as well. execve(2), unix(7).
 *
 * forking_given ADDRESS server PORT: answers CONNECTIONS clients, and says how many connections have come in all.
 * forking_given ADDRESS client PORT: asks as one program, and hears the answer as another one. */
#include "deferred.h"
#include "rights.h"

enum { CONNECTIONS = 4, LATER_MS = 300 };

static int server(void) {
	int listener = new_socket(0), on = 1, came = 0, answered = 0;
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	*port_of(&local) = htons((in_port_t)argument(2, 0));
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 16));
	struct pollfd one = {.fd = listener, .events = POLLIN};
	while (poll(&one, 1, answered < CONNECTIONS ? ARRIVAL_MS : LATER_MS) == 1) {
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		char byte = 0;
		came++;
		/* the answer comes when the other program waits for it */
		if (recv(fd, &byte, 1, 0) == 1 && byte == '?') {
			sleep_ms(50);
			send_all(fd, "!", 1);
			answered++;
		}
		close(fd);
	}
	say("connections: %d, answered: %d", came, answered);
	return 0;
}

static int hears(int fd) {
	char byte = 0;
	struct pollfd one = {.fd = fd, .events = POLLIN};
	if (poll(&one, 1, ARRIVAL_MS) != 1 || recv(fd, &byte, 1, 0) != 1 || byte != '!') return 1;
	return recv(fd, &byte, 1, 0) != 0;
}

static int ask(void) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, local));
	send_all(fd, "?", 1);
	return fd;
}

static int client(char *self) {
	*port_of(&local) = htons((in_port_t)argument(2, 0));
	for (int i = 0; i < CONNECTIONS; i++) {
		int ends[2], status = 0;
		must("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends));
		char what[2] = {(char)('0' + i % 2), 0}, number[16];
		/* The one that hears has been started before there is a connection, or is by now. */
		int fd = i % 2 ? ask() : ends[1];
		pid_t child = (pid_t)must("fork", fork());
		if (child == 0) {
			snprintf(number, sizeof number, "%d", fd);
			execl(self, self, program_argv[1], "reader", number, what, NULL);
			_exit(127);
		}
		if (i % 2 == 0) {
			fd = ask();
			must("sendmsg", send_rights(ends[0], ONE, &fd, 1));
		}
		close(fd);
		close(ends[0]);
		close(ends[1]);
		must("waitpid", waitpid(child, &status, 0));
		say("%s: %d", i % 2 ? "by exec" : "over a Unix socket", status);
	}
	return 0;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc < 4) return 2;
	if (!strcmp(argv[2], "server")) return server();
	if (!strcmp(argv[2], "client")) return client(argv[0]);
	int fd = (int)argument(2, -1);
	if (!argument(3, 0) && receive_rights(fd, ONE, &fd, 1) != 1) return 3;
	return hears(fd);
}

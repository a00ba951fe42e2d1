/* A server dies whose child lives on, which has no use for the connection: the peer sees the end, as soon as the server is dead. (With kernel
 * TCP the child has the connection, too, and the peer would wait for its end.) */
#include "process.h"

static void serve(void *context) {
	int *ends = context, go_on[2];
	int listener = new_listener(0, 4);
	struct address name = name_of(listener);
	must("write", write(ends[1], &name, sizeof name));
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	char byte;
	recv_all(fd, &byte, 1);
	send_all(fd, &byte, 1);
	must("pipe", pipe(go_on));
	if (must("fork", fork()) == 0) {
		close(go_on[1]);
		setpgid(0, 0);
		/* Until the client has seen the end. */
		must("read", read(ends[2], &byte, 1));
		_exit(0);
	}
	kill(getpid(), SIGKILL);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int ends[4];
	must("pipe", pipe(ends));
	must("pipe", pipe(ends + 2));
	pid_t server = child_of(serve, ends);
	struct address name;
	must("read", read(ends[0], &name, sizeof name));
	int fd = new_socket(0);
	must("connect", connect_to(fd, name));
	char byte = 'x';
	send_all(fd, &byte, 1);
	say("answers: %zu", recv_all(fd, &byte, 1));
	ssize_t got = recv(fd, &byte, 1, 0);
	say("the end: %s", got == 0 || (got < 0 && errno == ECONNRESET) ? "yes" : "no");
	ended("server", server);
	must("write", write(ends[3], "x", 1));
	return 0;
}

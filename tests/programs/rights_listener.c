/* Sockets without a connection that another process gets over a Unix socket: it accepts, listens and connects there. unix(7), SCM_RIGHTS: "Send or
 * receive a set of open file descriptors from another process … effectively … as if duplicated with dup(2)". The one who has given them away
 * keeps its own, and does nothing there. */
#include "rights.h"
#include <sys/wait.h>

enum { BYTES = 100000 };

static void *client(void *context) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, *(struct address *)context));
	send_pattern(fd, BYTES, 3000, 5);
	say("  the answer: %s", yes_no(recv_pattern(fd, BYTES, 4000, 6) == BYTES));
	close(fd);
	return NULL;
}

static void serve(const char *what, int listener) {
	/* The first look makes it one over the fabric as well. */
	struct pollfd one = {.fd = listener, .events = POLLIN};
	report("  nobody yet", poll(&one, 1, 0));
	struct address name = name_of(listener);
	pthread_t thread = start_thread(client, &name);
	int fd = (int)must("accept", accept(listener, NULL, NULL));
	say("  %s: received %s", what, recv_pattern(fd, BYTES, 4000, 5) == BYTES ? "all" : "less");
	send_pattern(fd, BYTES, 2000, 6);
	close(fd);
	pthread_join(thread, NULL);
}

static void receiver(int channel) {
	for (enum way way = ONE; way < WAYS; way++) {
		int all[3];
		say("%s: %zu came", way_names[way], receive_rights(channel, way, all, 3));
		serve("the one that listens", all[0]);
		must("listen", listen(all[1], 8));
		serve("the one that was bound", all[1]);
		int listener = new_listener(0, 4);
		must("connect", connect_to(all[2], name_of(listener)));
		struct pair both = {.client = all[2], .server = (int)must("accept", accept(listener, NULL, NULL))};
		send_all(both.client, "hello", 5);
		char bytes[8];
		say("  the one that was new: %zu bytes", recv_all(both.server, bytes, 5));
		close_pair(both);
		close(listener);
		close(all[0]);
		close(all[1]);
		/* The other end may go on. */
		must("write", write(channel, "d", 1));
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int ends[2], status;
	channel_pair(ends);
	pid_t child = (pid_t)must("fork", fork());
	if (!child) {
		close(ends[0]);
		return receiver(ends[1]), 0;
	}
	close(ends[1]);
	for (enum way way = ONE; way < WAYS; way++) {
		int all[3] = {new_listener(0, 8), new_socket(0), new_socket(0)};
		must("bind", bind_to(all[1], local));
		/* It has served before. */
		struct pair both = connect_pair(all[0]);
		close_pair(both);
		if (send_rights(ends[0], way, all, 3) != 1) die("send");
		char byte;
		must("read", read(ends[0], &byte, 1));
		for (int i = 0; i < 3; i++) close(all[i]);
	}
	must("waitpid", waitpid(child, &status, 0));
	say("status %d", status);
	return 0;
}

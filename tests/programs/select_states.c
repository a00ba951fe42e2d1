/* select(2), pselect(2): read, write and exception sets in every state of a stream socket. */
#include "common.h"

static void look(const char *what, int fd) {
	fd_set reads, writes, excepts;
	FD_ZERO(&reads);
	FD_SET(fd, &reads);
	writes = excepts = reads;
	struct timeval now = {0};
	int ready = select(fd + 1, &reads, &writes, &excepts, &now);
	if (ready < 0)
		say("%s: %s", what, strerrorname_np(errno));
	else
		say("%s: %d:%s%s%s", what, ready, FD_ISSET(fd, &reads) ? " read" : "", FD_ISSET(fd, &writes) ? " write" : "",
		    FD_ISSET(fd, &excepts) ? " except" : "");
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_socket(0);
	look("fresh", listener);
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 4));
	look("listening", listener);
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(listener)));
	wait_for(listener, POLLIN);
	look("listening, one waits", listener);
	int server = (int)must("accept", accept(listener, NULL, NULL));
	look("connected", client);
	send_all(client, "ab", 2);
	wait_for(server, POLLIN);
	look("data there", server);
	char text[4];
	recv_all(server, text, 2);
	look("data read", server);
	must("shutdown", shutdown(client, SHUT_WR));
	wait_for(server, POLLRDHUP);
	look("own SHUT_WR", client);
	look("peer's SHUT_WR", server);
	close(server);
	wait_for(client, POLLHUP);
	look("both gone", client);
	close(client);
	look("closed number", client);

	struct pair full = connect_pair(listener);
	static char block[1 << 16];
	for (int quiet = 0; quiet < 5; quiet++) {
		while (send(full.client, block, sizeof block, MSG_DONTWAIT) > 0) quiet = 0;
		sleep_ms(10);
	}
	look("full", full.client);
	return 0;
}

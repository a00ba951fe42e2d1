/* What poll(2) reports in every state of a stream socket, for each request: HUP, ERR and NVAL come unasked. */
#include "common.h"

static void look(const char *what, int fd) {
	static const short asked[] = {0, POLLIN, POLLOUT, POLLRDHUP, POLLPRI, POLLIN | POLLOUT, ALL_EVENTS};
	for (size_t i = 0; i < COUNT(asked); i++) {
		struct pollfd one = {.fd = fd, .events = asked[i], .revents = -1};
		int ready = poll(&one, 1, 0);
		char request[64];
		strcpy(request, event_names(asked[i]));
		say("%s: asked %s: %d %s", what, request, ready, event_names(one.revents));
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int fresh = new_socket(0);
	look("fresh", fresh);
	must("bind", bind_to(fresh, local));
	look("bound", fresh);
	must("listen", listen(fresh, 4));
	look("listening", fresh);
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(fresh)));
	wait_for(fresh, POLLIN);
	look("listening, one waits", fresh);
	int server = (int)must("accept", accept(fresh, NULL, NULL));
	look("listening, taken", fresh);
	look("connected client", client);
	look("connected server", server);
	send_all(client, "abc", 3);
	wait_for(server, POLLIN);
	look("data there", server);
	char text[8];
	recv_all(server, text, 2);
	look("some of it read", server);
	recv_all(server, text, 1);
	look("all of it read", server);
	must("shutdown", shutdown(client, SHUT_WR));
	wait_for(server, POLLRDHUP);
	look("own SHUT_WR", client);
	look("peer's SHUT_WR", server);
	recv(server, text, 1, 0);
	look("end of file read", server);
	must("shutdown", shutdown(server, SHUT_WR));
	wait_for(client, POLLHUP);
	look("both shut, client", client);
	look("both shut, server", server);
	close(server);
	look("peer closed after that", client);
	close(client);
	look("closed number", client);

	struct pair both = connect_pair(fresh);
	must("shutdown", shutdown(both.client, SHUT_RD));
	look("own SHUT_RD", both.client);
	look("peer's SHUT_RD", both.server);
	close_pair(both);

	both = connect_pair(fresh);
	send_all(both.server, "abc", 3);
	close(both.server);
	wait_for(both.client, POLLRDHUP);
	look("peer closed, data there", both.client);
	recv_all(both.client, text, 3);
	look("peer closed, data read", both.client);
	close(both.client);
	return 0;
}

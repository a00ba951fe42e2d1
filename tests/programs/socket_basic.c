/* One thread: listen, connect, accept in that order, 1 MiB each way, end of file.
 * listen(2): a connection is complete as soon as the backlog has room, before anybody calls accept. Case B11. */
#include "common.h"

enum { TOTAL = 1 << 20, PIECE = 4096 };

static void one_way(const char *what, int from, int to, unsigned seed) {
	char out[PIECE], in[PIECE];
	bool equal = true;
	for (uint64_t done = 0; done < TOTAL; done += PIECE) {
		fill_pattern(out, PIECE, done, seed);
		send_all(from, out, PIECE);
		equal &= recv_all(to, in, PIECE) == PIECE && has_pattern(in, PIECE, done, seed);
	}
	say("%s: %d bytes equal: %s", what, TOTAL, yes_no(equal));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = report_descriptor("socket", new_socket(0));
	report("bind", bind_to(listener, local));
	report("listen", listen(listener, 8));
	int client = new_socket(0);
	report("connect", connect_to(client, name_of(listener)));
	int server = report_descriptor("accept", accept(listener, NULL, NULL));
	report("close listener", close(listener));
	one_way("client to server", client, server, 1);
	one_way("server to client", server, client, 2);
	report("close client", close(client));
	char byte;
	report("recv at the end", recv(server, &byte, 1, 0));
	report("recv at the end again", recv(server, &byte, 1, 0));
	report("close server", close(server));
	report("close server again", close(server));
	return 0;
}

/* tcp(7): TCP_CORK, TCP_NODELAY and MSG_MORE hold bytes back for a while only: they arrive when the cork is pulled, when something follows,
 * with the end of the stream, and of a cork after 200 ms at the latest. Case B60. */
#include "common.h"

static void cork(int fd, int on) { must("TCP_CORK", setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on)); }

static void arrives(const char *what, int fd, size_t bytes) {
	char text[64];
	wait_bytes(fd, bytes);
	ssize_t got = recv(fd, text, sizeof text, 0);
	say("%s: %.*s", what, (int)got, text);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int on = 1;
	cork(both.client, 1);
	send_all(both.client, "corked ", 7);
	send_all(both.client, "and more", 8);
	cork(both.client, 0);
	arrives("pulled", both.server, 15);
	cork(both.client, 1);
	send_all(both.client, "left alone", 10);
	arrives("after a while", both.server, 10);
	must("TCP_NODELAY", setsockopt(both.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	send_all(both.client, "small", 5);
	must("TCP_NODELAY", setsockopt(both.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	arrives("corked, then TCP_NODELAY set", both.server, 5);
	cork(both.client, 0);
	report("MSG_MORE", send(both.client, "head ", 5, MSG_MORE));
	report("the rest", send(both.client, "body", 4, 0));
	arrives("head and body", both.server, 9);
	report("MSG_MORE", send(both.client, "tail", 4, MSG_MORE));
	arrives("with nothing behind", both.server, 4);
	cork(both.client, 1);
	report("corked at the end", send(both.client, "last", 4, 0));
	must("shutdown", shutdown(both.client, SHUT_WR));
	arrives("by shutdown", both.server, 4);
	char byte;
	report("end", recv(both.server, &byte, 1, 0));
	close_pair(both);
	both = new_pair();
	cork(both.client, 1);
	send_all(both.client, "closed", 6);
	close(both.client);
	arrives("by close", both.server, 6);
	report("end", recv(both.server, &byte, 1, 0));
	return 0;
}

/* Connections that end by a reset: SO_LINGER on with 0 seconds (socket(7), tcp(7)). (A close with unread data is one in TCP only: here
 * what was written before still arrives, see docs/COMPATIBILITY.md.)
 * recv(2), send(2): ECONNRESET, once; afterwards end of file and EPIPE. */
#include "common.h"

static void look(const char *what, int fd) {
	char byte;
	say("%s: %s", what, event_names(wait_for(fd, POLLHUP)));
	report(what, recv(fd, &byte, 1, 0));
	report(what, recv(fd, &byte, 1, 0));
	report(what, send(fd, &byte, 1, MSG_NOSIGNAL));
	close(fd);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	struct pair both = new_pair();
	must("SO_LINGER", setsockopt(both.client, SOL_SOCKET, SO_LINGER, &now, sizeof now));
	report("close", close(both.client));
	look("linger 0", both.server);
	return 0;
}

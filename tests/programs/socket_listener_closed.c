/* close(2) of a listener: accepted connections live on, new ones are refused, the port can be listened on again
 * (SO_REUSEADDR, socket(7)); a queued connection that nobody accepted ends. */
#include "common.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_socket(0), on = 1;
	must("SO_REUSEADDR", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 8));
	struct address name = name_of(listener);
	struct pair accepted = connect_pair(listener);
	int queued = new_socket(0);
	must("connect", connect_to(queued, name));
	wait_for(listener, POLLIN);
	report("close listener", close(listener));
	int late = new_socket(0);
	report("connect to the closed port", connect_to(late, name));

	char byte = 'x';
	report("send on the accepted", send(accepted.client, &byte, 1, 0));
	report("recv on the accepted", recv(accepted.server, &byte, 1, 0));
	wait_for(queued, POLLHUP);
	ssize_t got = recv(queued, &byte, 1, 0);
	say("the queued one ended: %s", yes_no(got == 0 || (got < 0 && errno == ECONNRESET)));

	int again = new_socket(0);
	must("SO_REUSEADDR", setsockopt(again, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	report("bind the same port", bind_to(again, name));
	report("listen on it", listen(again, 8));
	struct pair second = connect_pair(again);
	report("send", send(second.server, &byte, 1, 0));
	report("recv", recv(second.client, &byte, 1, 0));
	return 0;
}

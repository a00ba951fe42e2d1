/* listen(2): connections wait in the queue until accept takes them, in the order in which they came, with the data that
 * their senders wrote meanwhile; those whose sender closed are still delivered. */
#include "common.h"

enum { WAITING = 8 };

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, WAITING), clients[WAITING];
	for (int i = 0; i < WAITING; i++) {
		clients[i] = new_socket(0);
		report("connect", connect_to(clients[i], name_of(listener)));
		char name = (char)('a' + i);
		report("send", send(clients[i], &name, 1, 0));
	}
	close(clients[1]);
	say("listener: %s", event_names(wait_for(listener, POLLIN)));
	for (int i = 0; i < WAITING; i++) {
		int server = report_descriptor("accept", accept(listener, NULL, NULL));
		char name = 0;
		report("recv", recv(server, &name, 1, 0));
		say("from %c", name);
		if (i == 1) report("closed by its sender", recv(server, &name, 1, 0));
		close(server);
	}
	say("listener: %s", event_names(events_now(listener, POLLIN)));
	return 0;
}

/* connect(2), nonblocking: EINPROGRESS, "select(2) or poll(2) for completion by selecting the socket for writing", then
 * SO_ERROR 0; the accepted end is there; several at once; a blocking call on the connecting socket waits for it. */
#include "common.h"

enum { AT_ONCE = 8 };

static int begin_connect(const char *what, int listener) {
	int fd = new_socket(SOCK_NONBLOCK);
	int result = connect_to(fd, name_of(listener));
	/* a connection to the own host may be complete at once */
	say("%s: %s", what, yes_no(result == 0 || errno == EINPROGRESS));
	return fd;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 16), all[AT_ONCE];
	struct pollfd set[AT_ONCE];
	for (int i = 0; i < AT_ONCE; i++) {
		all[i] = begin_connect("begun", listener);
		set[i] = (struct pollfd){.fd = all[i], .events = POLLOUT};
	}
	for (int done = 0; done < AT_ONCE;) {
		must("poll", poll(set, AT_ONCE, ARRIVAL_MS));
		for (int i = 0; i < AT_ONCE; i++)
			if (set[i].fd >= 0 && set[i].revents) {
				if (set[i].revents != POLLOUT || socket_error(set[i].fd)) say("FAILED: %s", event_names(set[i].revents));
				set[i].fd = -1;
				done++;
			}
	}
	say("all writable");
	for (int i = 0; i < AT_ONCE; i++) {
		report("connect again", connect_to(all[i], name_of(listener)));
		char byte = (char)('a' + i);
		report("send", send(all[i], &byte, 1, 0));
	}
	int sum = 0;
	for (int i = 0; i < AT_ONCE; i++) {
		int server = (int)must("accept", accept(listener, NULL, NULL));
		char byte;
		report("recv", recv(server, &byte, 1, 0));
		sum += byte;
		report("answer", send(server, &byte, 1, 0));
		wait_for(all[byte - 'a'], POLLIN);
		char back = 0;
		report("recv", recv(all[byte - 'a'], &back, 1, 0));
		say("the same byte: %s", yes_no(back == byte));
		close(server);
	}
	say("every one once: %s", yes_no(sum == AT_ONCE * 'a' + AT_ONCE * (AT_ONCE - 1) / 2));

	int late = begin_connect("then blocking", listener);
	set_nonblocking(late, false);
	report("send waits for the connection", send(late, "z", 1, 0));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	char byte;
	report("recv", recv(server, &byte, 1, 0));

	fd_set writes;
	int selected = begin_connect("select", listener);
	FD_ZERO(&writes);
	FD_SET(selected, &writes);
	report("select", select(selected + 1, NULL, &writes, NULL, NULL));
	report_socket_error("select", selected);
	int closed = begin_connect("closed while connecting", listener);
	report("close", close(closed));
	return 0;
}

/* A connection that nobody takes. connect(2): ECONNREFUSED; nonblocking: EINPROGRESS, then select or poll says writable
 * and SO_ERROR, which reading clears (socket(7)), tells. poll(2): ERR and HUP come unasked. Case B10. */
#include "common.h"

static int begin_refused(void) {
	int fd = new_socket(SOCK_NONBLOCK);
	report("nonblocking connect", connect_to(fd, closed_port()));
	return fd;
}

static void polled(const char *what, short asked) {
	int fd = begin_refused();
	struct pollfd one = {.fd = fd, .events = asked};
	report(what, poll(&one, 1, ARRIVAL_MS));
	say("%s: %s", what, event_names(one.revents));
	report_socket_error("first", fd);
	report_socket_error("second", fd);
	say("afterwards: %s", event_names(events_now(fd, asked)));
	close(fd);
}

static void selected(void) {
	int fd = begin_refused();
	fd_set reads, writes, excepts;
	FD_ZERO(&reads);
	FD_SET(fd, &reads);
	writes = excepts = reads;
	struct timeval limit = {.tv_sec = ARRIVAL_MS / 1000};
	report("select", select(fd + 1, &reads, &writes, &excepts, &limit));
	say("select: read %s, write %s, except %s", yes_no(FD_ISSET(fd, &reads)), yes_no(FD_ISSET(fd, &writes)),
	    yes_no(FD_ISSET(fd, &excepts)));
	report_socket_error("select", fd);
	close(fd);
}

static void data_calls(void) {
	char byte = 0;
	int fd = begin_refused();
	wait_for(fd, POLLERR | POLLHUP);
	report("recv takes the error", recv(fd, &byte, 1, 0));
	report_socket_error("after recv", fd);
	report("recv again", recv(fd, &byte, 1, 0));
	report("send", send(fd, &byte, 1, MSG_NOSIGNAL));
	close(fd);

	fd = begin_refused();
	wait_for(fd, POLLERR | POLLHUP);
	report("send takes the error", send(fd, &byte, 1, MSG_NOSIGNAL));
	report_socket_error("after send", fd);
	close(fd);

	fd = begin_refused();
	wait_for(fd, POLLERR | POLLHUP);
	report("connect takes the error", connect_to(fd, closed_port()));
	report_socket_error("after connect", fd);
	close(fd);
}

static void connect_after_refusal(void) {
	int fd = new_socket(0);
	report("refused", connect_to(fd, closed_port()));
	report("refused again", connect_to(fd, closed_port()));
	int listener = new_listener(0, 1);
	report("then taken", connect_to(fd, name_of(listener)));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	char byte = 'a';
	send_all(fd, &byte, 1);
	report("recv", recv(server, &byte, 1, 0));
	close(fd);
	close(server);
	close(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int fd = new_socket(0);
	report("blocking connect", connect_to(fd, closed_port()));
	report_socket_error("blocking", fd);
	say("blocking: %s", event_names(events_now(fd, ALL_EVENTS)));
	close(fd);
	polled("poll OUT", POLLOUT);
	polled("poll IN", POLLIN);
	polled("poll nothing", 0);
	polled("poll all", ALL_EVENTS);
	selected();
	data_calls();
	connect_after_refusal();
	return 0;
}

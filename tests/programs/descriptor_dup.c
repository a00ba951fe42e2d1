/* dup(2), fcntl(2): every kind of copy shares the socket and its status flags, not close-on-exec; closing one of two leaves
 * the connection; dup2(fd, fd) is a test, dup3(fd, fd) EINVAL; dup2 over a live socket closes that one. Case B30. */
#include "common.h"

static int copy(const char *how, int fd) {
	if (!strcmp(how, "dup")) return dup(fd);
	if (!strcmp(how, "dup2")) return dup2(fd, 200);
	if (!strcmp(how, "dup3")) return dup3(fd, 201, 0);
	if (!strcmp(how, "dup3 O_CLOEXEC")) return dup3(fd, 202, O_CLOEXEC);
	if (!strcmp(how, "F_DUPFD")) return fcntl(fd, F_DUPFD, 203);
	return fcntl(fd, F_DUPFD_CLOEXEC, 204);
}

static void exchange(const char *what, int one, int other) {
	char byte = 'q', back = 0;
	send_all(one, &byte, 1);
	ssize_t got = recv(other, &back, 1, 0);
	send_all(other, &back, 1);
	byte = 0;
	ssize_t again = recv(one, &byte, 1, 0);
	say("  %s: %zd %zd %c", what, got, again, byte);
}

static void all_of(const char *how, bool close_first) {
	struct pair both = new_pair();
	int second = copy(how, both.client);
	say("%s, close the %s first", how, close_first ? "original" : "copy");
	report_descriptor("  copy", second);
	say("  close-on-exec: original %s, copy %s", yes_no(is_cloexec(both.client)), yes_no(is_cloexec(second)));
	must("F_SETFD", fcntl(second, F_SETFD, FD_CLOEXEC));
	say("  after F_SETFD on the copy: original %s, copy %s", yes_no(is_cloexec(both.client)), yes_no(is_cloexec(second)));
	exchange("both open", second, both.server);
	set_nonblocking(second, true);
	char byte;
	say("  O_NONBLOCK of the original: %s", yes_no(is_nonblocking(both.client)));
	report("  recv on the original", recv(both.client, &byte, 1, 0));
	set_nonblocking(both.client, false);
	say("  O_NONBLOCK of the copy: %s", yes_no(is_nonblocking(second)));
	struct address first_name = name_of(both.client), second_name = name_of(second);
	say("  the same name: %s", yes_no(*port_of(&first_name) == *port_of(&second_name)));
	int left = close_first ? second : both.client;
	report("  close", close(close_first ? both.client : second));
	exchange("one closed", left, both.server);
	say("  server: %s", event_names(events_now(both.server, ALL_EVENTS)));
	report("  close the last", close(left));
	report("  server", recv(both.server, &byte, 1, 0));
	close(both.server);
}

static void over(void) {
	struct pair first = new_pair(), second = new_pair();
	char byte;
	report("dup2 onto itself", dup2(first.client, first.client) == first.client ? 0 : -1);
	report("dup3 onto itself", dup3(first.client, first.client, 0));
	report("dup3 with unknown flags", dup3(first.client, 210, 0x1000));
	report("dup2 of a closed number", dup2(299, first.client));
	exchange("alive after that", first.client, first.server);
	say("dup2 over a live socket");
	report("  dup2", dup2(first.client, second.client) == second.client ? 0 : -1);
	report("  peer of the one it replaced", recv(second.server, &byte, 1, 0));
	exchange("by the new number", second.client, first.server);
	int file = (int)must("open", open("/dev/zero", O_RDWR));
	say("dup2 of a socket over a file, and of a file over a socket");
	report("  dup2", dup2(first.client, file) == file ? 0 : -1);
	exchange("by the file's number", file, first.server);
	int zero = (int)must("open", open("/dev/zero", O_RDWR));
	report("  dup2", dup2(zero, file) == file ? 0 : -1);
	byte = 1;
	report("  read of the file", read(file, &byte, 1));
	say("  %d", byte);
	report("  recv of the file", recv(file, &byte, 1, 0));
	exchange("the socket is alive", first.client, first.server);
	report("  shutdown by one number", shutdown(second.client, SHUT_WR));
	report("  server", recv(first.server, &byte, 1, 0));
	report("  send by the other", send(first.client, &byte, 1, MSG_NOSIGNAL));
}

static void of_listener(void) {
	int listener = new_listener(0, 4), second = dup(listener);
	struct address name = name_of(listener);
	close(listener);
	int client = new_socket(0);
	say("listener");
	report("  connect", connect_to(client, name));
	int server = report_descriptor("  accept on the copy", accept(second, NULL, NULL));
	exchange("accepted", client, server);
	close(second);
	int late = new_socket(0);
	report("  connect after both are closed", connect_to(late, name));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	static const char *ways[] = {"dup", "dup2", "dup3", "dup3 O_CLOEXEC", "F_DUPFD", "F_DUPFD_CLOEXEC"};
	for (size_t i = 0; i < COUNT(ways); i++) {
		all_of(ways[i], true);
		all_of(ways[i], false);
	}
	over();
	of_listener();
	return 0;
}

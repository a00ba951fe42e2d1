/* An epoll set whose last socket is closed while the library has something to say of it, which is then said to a wait that is the kernel's
 * alone. The next socket's connection moves while the program sleeps in the set: that has to be said again. */
#include "deferred.h"
#include <sys/epoll.h>

enum { AGAIN_MS = 50, PATIENCE_MS = 5000 };

static void speak(int fd, long number) {
	char byte;
	(void)number;
	send_all(fd, "a", 1);
	sleep_ms(AGAIN_MS);
	send_all(fd, "b", 1);
	while (recv(fd, &byte, 1, 0) > 0) {}
}

static void add(int set, int fd) {
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static void report_wait(const char *what, int set, int timeout) {
	struct epoll_event event = {0};
	int64_t start = now_us();
	int found = (int)must("epoll_wait", epoll_wait(set, &event, 1, timeout));
	bool late = timeout && now_us() - start >= timeout * 900;
	say("%s: %d, events %x%s", what, found, found ? event.events : 0, late ? ", late" : "");
}

static void report_byte(int fd) {
	char byte = '?';
	ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
	say("recv: %zd %c", got, byte);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct server server = start_server(OWN, 2, speak, 0);
	int set = (int)must("epoll_create1", epoll_create1(0)), outer = (int)must("epoll_create1", epoll_create1(0));
	/* Who watches the set wants to know of everything. */
	add(outer, set);
	int first = connect_to_server(&server);
	add(set, first);
	report_wait("the first", set, PATIENCE_MS);
	report_byte(first);
	sleep_ms(4 * AGAIN_MS);
	report_byte(first);
	close(first);
	report_wait("nobody", set, 0);
	int second = new_socket(SOCK_NONBLOCK);
	if (connect_to(second, server.address) && errno != EINPROGRESS) die("connect");
	add(set, second);
	report_wait("the second", set, PATIENCE_MS);
	report_byte(second);
	close(second);
	finish_child("server", server.child);
	return 0;
}

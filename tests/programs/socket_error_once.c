/* socket(7), SO_ERROR: an error is reported once, by whatever call meets it first, and then gone: after a reset, and after a refusal.
 * Cases B10, B35. */
#include "states.h"

static int fd;
static char byte;

static long by_getsockopt(void) {
	int error = socket_error(fd);
	errno = error;
	return error ? -1 : 0;
}
static long by_recv(void) { return recv(fd, &byte, 1, MSG_DONTWAIT); }
static long by_peek(void) { return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK); }
static long by_read(void) { return read(fd, &byte, 1); }
static long by_send(void) { return send(fd, "x", 1, MSG_DONTWAIT | MSG_NOSIGNAL); }
static long by_shutdown(void) { return shutdown(fd, SHUT_WR); }
static long by_name(void) {
	struct address peer = {.length = sizeof peer.storage};
	return getpeername(fd, sockaddr_of(&peer), &peer.length);
}
static long by_poll(void) {
	struct pollfd one = {.fd = fd, .events = ALL_EVENTS};
	poll(&one, 1, 0);
	return one.revents;
}
static long by_queued(void) {
	int queued = -1;
	return ioctl(fd, FIONREAD, &queued) < 0 ? -1 : queued;
}

static const struct {
	const char *name;
	long (*call)(void);
} calls[] = {{"SO_ERROR", by_getsockopt}, {"recv", by_recv}, {"peek", by_peek}, {"read", by_read}, {"send", by_send},
	     {"shutdown", by_shutdown},	  {"getpeername", by_name}, {"poll", by_poll}, {"FIONREAD", by_queued}};

static void show(size_t i) {
	long result = calls[i].call();
	if (calls[i].call == by_poll)
		printf(" %s:%s", calls[i].name, event_names((short)result));
	else
		printf(" %s:%s", calls[i].name, result < 0 ? strerrorname_np(errno) : result ? "some" : "0");
}

static int refused(void) {
	int made = new_socket(SOCK_NONBLOCK);
	if (connect_to(made, closed_port()) < 0 && errno != EINPROGRESS && errno != ECONNREFUSED) die("connect");
	wait_for(made, POLLHUP);
	return made;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (int kind = 0; kind < 3; kind++) {
		static const char *const kinds[] = {"reset", "reset with data", "refused"};
		for (size_t first = 0; first < COUNT(calls); first++) {
			struct stand stand = {-1, -1};
			if (kind == 2) {
				fd = refused();
			} else {
				struct pair both = new_pair();
				fd = both.client;
				if (kind == 1) {
					send_all(both.server, "abc", 3);
					wait_bytes(fd, 3);
				}
				reset(both.server);
				wait_for(fd, POLLHUP);
			}
			stand.fd = fd;
			printf("%s, first %s:", kinds[kind], calls[first].name);
			/* What was not there to be read when the connection was reset is lost: a matter of time, not looked at here. */
			if (kind == 1 && (calls[first].call == by_recv || calls[first].call == by_read || calls[first].call == by_peek)) {
				say(" left out");
				drop(stand);
				continue;
			}
			show(first);
			for (size_t then = 0; then < COUNT(calls); then++)
				if (kind != 1 || (calls[then].call != by_recv && calls[then].call != by_read && calls[then].call != by_peek &&
						  calls[then].call != by_queued))
					show(then);
			putchar('\n');
			drop(stand);
		}
	}
	return 0;
}

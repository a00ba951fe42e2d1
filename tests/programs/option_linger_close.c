/* socket(7), SO_LINGER: close returns at once where it is off, where it is on and everything has arrived, on a nonblocking socket, and with a
 * time of 0, which resets; shutdown does not linger; the peer gets all that was sent, but for the reset. Case B36. */
#include "common.h"

static void linger(int fd, int on, int seconds) {
	struct linger value = {on, seconds};
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
}

static void closes(const char *what, int on, int seconds, bool nonblocking, bool shut) {
	struct pair both = new_pair();
	linger(both.client, on, seconds);
	set_nonblocking(both.client, nonblocking);
	send_all(both.client, "0123456789", 10);
	char text[16];
	wait_bytes(both.server, 10);
	if (shut) {
		must("shutdown", shutdown(both.client, SHUT_WR));
		wait_for(both.server, POLLRDHUP);
	}
	int64_t start = now_us();
	int result = close(both.client);
	say("%s: close %d, at once: %s", what, result, yes_no(now_us() - start < 1000000));
	short events = wait_for(both.server, shut && !on ? POLLRDHUP : seconds || !on ? POLLRDHUP : POLLHUP);
	if (on && !seconds) {
		say("  reset: %s", event_names(events & (POLLERR | POLLHUP)));
		report_socket_error("  reset", both.server);
	} else {
		report("  recv", recv(both.server, text, sizeof text, 0));
		report("  end", recv(both.server, text, sizeof text, 0));
	}
	close(both.server);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	closes("off", 0, 0, false, false);
	closes("off with a time", 0, 9, false, false);
	closes("5 seconds, all has arrived", 1, 5, false, false);
	closes("5 seconds, nonblocking", 1, 5, true, false);
	closes("5 seconds, shut before", 1, 5, false, true);
	closes("a reset", 1, 0, false, false);
	closes("a reset, nonblocking", 1, 0, true, false);
	return 0;
}

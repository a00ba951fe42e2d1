/* A nonblocking sender fills the connection until EAGAIN; what was taken, and only that, arrives in order; POLLOUT is off
 * while it is full and comes back when the reader has read (poll(2), send(2)). */
#include "common.h"

enum { PIECE = 30000 };

static uint64_t fill(int fd, uint64_t done, bool with_flag) {
	char piece[PIECE];
	int quiet = 0;
	while (quiet < 5) { /* data in flight moves on for a moment: full means full five times running */
		fill_pattern(piece, PIECE, done, 1);
		ssize_t sent = send(fd, piece, PIECE, with_flag ? MSG_DONTWAIT : 0);
		if (sent < 0) {
			if (errno != EAGAIN) die("send");
			quiet++;
			sleep_ms(20);
		} else {
			quiet = 0;
			done += (uint64_t)sent;
		}
	}
	return done;
}

static void round_with(const char *what, bool with_flag) {
	struct pair both = new_pair();
	if (!with_flag) set_nonblocking(both.client, true);
	uint64_t sent = fill(both.client, 0, with_flag);
	say("%s: took something before EAGAIN: %s", what, yes_no(sent > 0));
	say("%s: full: %s", what, event_names(events_now(both.client, ALL_EVENTS)));
	say("%s: all of it arrived: %s", what, yes_no(recv_pattern(both.server, sent, 65536, 1) == sent));
	char byte;
	report("and no more", recv(both.server, &byte, 1, MSG_DONTWAIT));
	say("%s: drained: %s", what, event_names(wait_for(both.client, POLLOUT)));

	/* several times full and empty */
	bool equal = true;
	uint64_t total = sent;
	for (int round = 0; round < 5; round++) {
		uint64_t upto = fill(both.client, total, with_flag);
		char *buffer = malloc((size_t)(upto - total) + 1);
		size_t got = recv_all(both.server, buffer, (size_t)(upto - total));
		equal &= got == upto - total && has_pattern(buffer, got, total, 1);
		free(buffer);
		total = upto;
	}
	say("%s: five more rounds equal: %s", what, yes_no(equal));
	close(both.client);
	report("end", recv(both.server, &byte, 1, 0));
	close(both.server);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	round_with("O_NONBLOCK", false);
	round_with("MSG_DONTWAIT", true);
	return 0;
}

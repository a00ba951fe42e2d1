/* poll(2), ppoll(2): a time-out is never cut short, 0 does not wait, negative numbers are skipped with revents 0, no
 * descriptors at all is a sleep, too many are EINVAL. */
#include "common.h"

static void timed(const char *what, struct pollfd *fds, nfds_t count, int ms) {
	int64_t start = now_us();
	report(what, poll(fds, count, ms));
	report_not_early(what, start, ms);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int listener = new_listener(0, 1);
	struct pollfd quiet[3] = {
		{.fd = both.server, .events = POLLIN}, {.fd = -1, .events = POLLIN, .revents = 77}, {.fd = listener, .events = POLLIN}};
	timed("nothing comes, 1 ms", quiet, 3, 1);
	timed("nothing comes, 50 ms", quiet, 3, 50);
	timed("nothing comes, 300 ms", quiet, 3, 300);
	say("negative number: %s", event_names(quiet[1].revents));
	for (int i = 0; i < 20; i++) {
		int64_t start = now_us();
		if (poll(quiet, 1, 7) != 0 || now_us() - start < 7000) say("round %d was early", i);
	}
	timed("no descriptors", NULL, 0, 30);
	timed("0 ms", quiet, 3, 0);

	struct timespec wait = {.tv_nsec = 60 * 1000000};
	int64_t start = now_us();
	report("ppoll", ppoll(quiet, 3, &wait, NULL));
	report_not_early("ppoll", start, 60);
	say("ppoll left its time-out alone: %s", yes_no(wait.tv_sec == 0 && wait.tv_nsec == 60 * 1000000));
	wait.tv_nsec = -1;
	report("ppoll, bad time", ppoll(quiet, 3, &wait, NULL));
	wait.tv_nsec = 1000000000;
	report("ppoll, bad nanoseconds", ppoll(quiet, 3, &wait, NULL));

	send_all(both.client, "x", 1);
	report("something comes", poll(quiet, 3, -1));
	say("%s, %s, %s", event_names(quiet[0].revents), event_names(quiet[1].revents), event_names(quiet[2].revents));
	report("ppoll for ever", ppoll(quiet, 3, NULL, NULL));
	report("the same one twice", poll((struct pollfd[]){quiet[0], quiet[0]}, 2, 0));
	report("too many", poll(quiet, (nfds_t)1 << 30, 0));
	return 0;
}

/* select(2): a time-out is never cut short; on Linux it is lessened by the time waited; pselect leaves it alone; no sets
 * at all is a sleep; negative times and counts are EINVAL; sets not ready are cleared. */
#include "common.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int top = both.server + 1;
	fd_set reads, writes;
	static const int waits[] = {1, 20, 300};
	for (size_t i = 0; i < COUNT(waits); i++) {
		FD_ZERO(&reads);
		FD_SET(both.server, &reads);
		struct timeval limit = {.tv_usec = waits[i] * 1000};
		int64_t start = now_us();
		report("nothing comes", select(top, &reads, NULL, NULL, &limit));
		report_not_early("nothing comes", start, waits[i]);
		say("set cleared: %s, time left: %s", yes_no(!FD_ISSET(both.server, &reads)),
		    yes_no(limit.tv_sec || limit.tv_usec));
	}
	struct timeval nap = {.tv_usec = 30000};
	int64_t start = now_us();
	report("no sets", select(0, NULL, NULL, NULL, &nap));
	report_not_early("no sets", start, 30);

	FD_ZERO(&reads);
	FD_SET(both.server, &reads);
	writes = reads;
	struct timeval long_wait = {.tv_sec = 100};
	report("writable at once", select(top, &reads, &writes, NULL, &long_wait));
	say("time is left: %s", yes_no(long_wait.tv_sec >= 90));
	send_all(both.client, "x", 1);
	FD_SET(both.server, &reads);
	report("data, no time-out", select(top, &reads, NULL, NULL, NULL));

	char byte;
	report("recv", recv(both.server, &byte, 1, 0));
	FD_ZERO(&reads);
	FD_SET(both.server, &reads);
	struct timespec wait = {.tv_nsec = 40 * 1000000};
	start = now_us();
	report("pselect", pselect(top, &reads, NULL, NULL, &wait, NULL));
	report_not_early("pselect", start, 40);
	say("pselect left its time-out alone: %s", yes_no(wait.tv_nsec == 40 * 1000000));
	struct timeval negative = {.tv_sec = -1};
	report("negative time", select(top, &reads, NULL, NULL, &negative));
	report("negative count", select(-1, &reads, NULL, NULL, NULL));
	return 0;
}

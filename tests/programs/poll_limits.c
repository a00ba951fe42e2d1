/* poll(2): more entries than RLIMIT_NOFILE are EINVAL, as many are not; entries of -1 and numbers that are not open; no events; no
 * entries; times of any kind. */
#include "common.h"
#include <sys/resource.h>

enum { LIMIT = 64 };
static struct pollfd many[2 * LIMIT];

static void of_many(const char *what, nfds_t count, int at, int fd) {
	for (nfds_t i = 0; i < COUNT(many); i++) many[i] = (struct pollfd){.fd = -1, .events = POLLIN, .revents = 77};
	many[at] = (struct pollfd){.fd = fd, .events = POLLOUT, .revents = 77};
	report(what, poll(many, count, 0));
	int changed = 0;
	for (nfds_t i = 0; i < COUNT(many); i++) changed += many[i].revents != 77;
	say("  its events %s, changed %d", many[at].revents == 77 ? "untouched" : event_names(many[at].revents), changed);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int fd = both.client;
	struct rlimit limit;
	must("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = LIMIT;
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	of_many("as many as allowed", LIMIT, 3, fd);
	of_many("one more", LIMIT + 1, 3, fd);
	of_many("twice as many", 2 * LIMIT, LIMIT, fd);
	of_many("the socket is the last one", LIMIT, LIMIT - 1, fd);
	nfds_t huge = argument(1, UINT_MAX), few = argument(2, 1);
	struct pollfd *none = argument(3, 0) ? many : NULL;
	report("more than there can be", poll(many, huge, 0));
	report("no array, no entries", poll(none, 0, 0));
	report("no array, one entry", poll(none, few, 0));
	limit.rlim_cur = 20;
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	int high = (int)must("dup2", dup2(fd, 19));
	of_many("a small limit", 20, 0, high);
	of_many("beyond a small limit", 21, 0, high);
	close(high);
	limit.rlim_cur = limit.rlim_max;
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));

	struct pollfd mixed[] = {{fd, 0, 7}, {-1, POLLIN, 7}, {fd, POLLOUT, 7}, {INT_MIN, POLLOUT, 7}, {1 << 19, POLLIN, 7}, {fd, POLLIN, 7}, {fd, POLLOUT, 7}};
	report("mixed", poll(mixed, COUNT(mixed), 1000));
	for (size_t i = 0; i < COUNT(mixed); i++) say("  %zu: %s", i, event_names(mixed[i].revents));
	struct pollfd one = {.fd = fd, .events = POLLIN};
	static const struct timespec times[] = {{0, 1}, {0, 999999999}, {0, 1000000000}, {0, -1}, {-1, 0}, {-1, -1}};
	for (size_t i = 0; i < COUNT(times); i++) {
		int64_t start = now_us();
		int result = ppoll(&one, 1, &times[i], NULL), error = errno;
		say("ppoll for %ld s %ld ns: %d %s, long enough: %s", (long)times[i].tv_sec, times[i].tv_nsec, result,
		    result < 0 ? strerrorname_np(error) : "", yes_no(result < 0 || (now_us() - start) * 1000 >= times[i].tv_nsec - 1000));
	}
	send_all(both.server, "x", 1);
	wait_for(fd, POLLIN);
	struct timespec longest = {LONG_MAX, 999999999};
	report("ppoll for the longest time, readable", ppoll(&one, 1, &longest, NULL));
	report("poll for INT_MIN, readable", poll(&one, 1, INT_MIN));
	report("poll for INT_MAX, readable", poll(&one, 1, INT_MAX));
	return 0;
}

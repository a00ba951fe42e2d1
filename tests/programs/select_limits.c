/* select(2), pselect(2): numbers up to FD_SETSIZE - 1 and, with larger sets, beyond; numbers that are not open: EBADF; counts and times
 * that make no sense: EINVAL; the time that is left is written back, by select alone. */
#include "common.h"
#include <sys/resource.h>

static unsigned char big[3][8192 / 8]; /* room for 8192 numbers */

static void put(int set, int fd) { big[set][fd / 8] |= (unsigned char)(1 << (fd % 8)); }
static bool has(int set, int fd) { return big[set][fd / 8] >> (fd % 8) & 1; }

static void wide(const char *what, int count, int reads, int writes) {
	memset(big, 0, sizeof big);
	if (reads >= 0) put(0, reads);
	if (writes >= 0) put(1, writes);
	struct timeval limit = {0, 0};
	int result = select(count, (fd_set *)big[0], (fd_set *)big[1], (fd_set *)big[2], &limit), error = errno;
	say("%s: %d %s, read %s, write %s", what, result, result < 0 ? strerrorname_np(error) : "", yes_no(reads >= 0 && has(0, reads)),
	    yes_no(writes >= 0 && has(1, writes)));
}

static void timed(const char *what, int fd, struct timeval limit, int readable) {
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	struct timeval before = limit;
	int64_t start = now_us();
	int result = select(fd + 1, &set, NULL, NULL, &limit), error = errno;
	int64_t left = limit.tv_sec * 1000000 + limit.tv_usec, whole = before.tv_sec * 1000000 + before.tv_usec, gone = now_us() - start;
	say("%s: %d %s, ready %s, left: %s", what, result, result < 0 ? strerrorname_np(error) : "", yes_no(result == readable),
	    left == whole ? "all" : left == 0 ? "nothing" : left >= whole - gone - 1000 && left < whole ? "what was not waited" : "another");
}

static volatile sig_atomic_t handled;
static void handler(int number) {
	(void)number;
	handled++;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	send_all(both.server, "x", 1);
	wait_for(both.client, POLLIN);
	struct rlimit limit;
	must("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
	if (limit.rlim_max < 8192) die("room for 8192 descriptors");
	limit.rlim_cur = 8192;
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	static const int numbers[] = {1000, 1023, 1024, 1500, 5000, 8191};
	for (size_t i = 0; i < COUNT(numbers); i++) {
		int fd = (int)must("dup2", dup2(both.client, numbers[i]));
		char what[64];
		sprintf(what, "number %d", fd);
		wide(what, fd + 1, fd, fd);
		sprintf(what, "number %d, not counted", fd);
		wide(what, fd, fd, fd);
		close(fd);
		sprintf(what, "number %d, closed", fd);
		wide(what, fd + 1, fd, both.client);
	}
	wide("none", 8192, -1, -1);
	wide("a count beyond all", INT_MAX, both.client, both.client);
	wide("a negative count", -1, both.client, both.client);

	timed("readable", both.client, (struct timeval){5, 0}, 1);
	timed("not readable", both.server, (struct timeval){0, 50000}, 0);
	timed("no time", both.server, (struct timeval){0, 0}, 0);
	timed("more than a second of microseconds", both.server, (struct timeval){0, 1000001}, 0);
	timed("negative microseconds", both.server, (struct timeval){1, -1}, -1);
	timed("negative seconds", both.server, (struct timeval){-1, 0}, -1);

	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval soon = {.it_value = {.tv_usec = 100000}};
	setitimer(ITIMER_REAL, &soon, NULL);
	timed("interrupted", both.server, (struct timeval){10, 0}, -1);
	setitimer(ITIMER_REAL, &soon, NULL);
	struct timespec constant = {10, 0};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	report("pselect interrupted", pselect(both.server + 1, &set, NULL, NULL, &constant, NULL));
	say("its time is left alone: %s, its set too: %s, handled %d", yes_no(constant.tv_sec == 10), yes_no(FD_ISSET(both.server, &set)), (int)handled);
	alarm(WATCHDOG_SECONDS);
	struct timespec wrong = {0, 1000000000};
	report("pselect for too many nanoseconds", pselect(both.server + 1, &set, NULL, NULL, &wrong, NULL));
	return 0;
}

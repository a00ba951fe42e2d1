/* socket(7), SO_RCVTIMEO and SO_SNDTIMEO: values from nothing to the largest, negative and odd ones, what they read back as, and that a
 * negative one waits for nothing. SO_LINGER: the same. */
#include "common.h"

static void time_values(const char *what, int fd, int option) {
	static const struct timeval values[] = {{0, 0}, {0, 1}, {0, 999}, {0, 1000}, {0, 10000}, {0, 999999}, {0, 1000000}, {0, -1}, {1, 500000},
						{-1, 0}, {-1, 5}, {-5, -5}, {1 << 30, 0}, {LONG_MAX, 0}, {LONG_MAX, 999999}, {LONG_MIN, 0}, {0, 0}};
	for (size_t i = 0; i < COUNT(values); i++) {
		struct timeval back = {-7, -7};
		socklen_t length = sizeof back;
		int result = setsockopt(fd, SOL_SOCKET, option, &values[i], sizeof values[i]);
		printf("%s %ld.%06ld: %s", what, (long)values[i].tv_sec, (long)values[i].tv_usec, result < 0 ? strerrorname_np(errno) : "ok");
		must("get", getsockopt(fd, SOL_SOCKET, option, &back, &length));
		say(", reads %ld.%06ld, length %u", (long)back.tv_sec, (long)back.tv_usec, length);
	}
}

static void linger_values(int fd) {
	static const struct linger values[] = {{1, 0}, {1, 5}, {7, 5}, {-1, 5}, {0, 9}, {1, -1}, {1, 65536}, {1, INT_MAX}, {0, 0}};
	for (size_t i = 0; i < COUNT(values); i++) {
		struct linger back = {-7, -7};
		socklen_t length = sizeof back;
		int result = setsockopt(fd, SOL_SOCKET, SO_LINGER, &values[i], sizeof values[i]);
		printf("SO_LINGER %d %d: %s", values[i].l_onoff, values[i].l_linger, result < 0 ? strerrorname_np(errno) : "ok");
		must("get", getsockopt(fd, SOL_SOCKET, SO_LINGER, &back, &length));
		say(", reads %d %d, length %u", back.l_onoff, back.l_linger, length);
	}
}

static void waits(const char *what, int fd, int listener, struct timeval limit) {
	char byte;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	int64_t start = now_us(), least = limit.tv_sec < 0 ? 0 : limit.tv_sec * 1000000 + limit.tv_usec;
	long got = recv(fd, &byte, 1, 0);
	int error = errno;
	int64_t gone = now_us() - start;
	say("%s: recv %ld %s, long enough %s, not too long %s", what, got, strerrorname_np(error), yes_no(gone >= least), yes_no(gone < least + 5000000));
	start = now_us();
	got = accept(listener, NULL, NULL);
	error = errno;
	gone = now_us() - start;
	say("%s: accept %ld %s, long enough %s, not too long %s", what, got, strerrorname_np(error), yes_no(gone >= least), yes_no(gone < least + 5000000));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 4);
	struct pair both = connect_pair(listener);
	int all[] = {new_socket(0), listener, both.client, both.server};
	static const char *const names[] = {"fresh", "listening", "connected", "accepted"};
	for (size_t i = 0; i < COUNT(all); i++) {
		say("%s", names[i]);
		time_values("SO_RCVTIMEO", all[i], SO_RCVTIMEO);
		time_values("SO_SNDTIMEO", all[i], SO_SNDTIMEO);
		linger_values(all[i]);
	}
	waits("negative", both.server, listener, (struct timeval){-1, 0});
	waits("1 us", both.server, listener, (struct timeval){0, 1});
	waits("a clock tick", both.server, listener, (struct timeval){0, 10000});
	waits("a while", both.server, listener, (struct timeval){0, 123456});
	struct timeval none = {0, 0};
	setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none);
	send_all(both.client, "x", 1);
	char byte;
	report("recv", recv(both.server, &byte, 1, 0));
	return 0;
}

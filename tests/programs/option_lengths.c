/* getsockopt(2), setsockopt(2): lengths that are short, long, zero and negative, and pointers that are NULL, for each option of a stream
 * socket, on a fresh, a listening and a connected one. A value may be cut, and its length says how. Case B60. */
#include "option_table.h"

static const struct option others[] = {
	{"SO_LINGER", SOL_SOCKET, SO_LINGER, 0, {0}},
	{"SO_RCVTIMEO", SOL_SOCKET, SO_RCVTIMEO, 0, {0}},
	{"SO_SNDTIMEO", SOL_SOCKET, SO_SNDTIMEO, 0, {0}},
	{"SO_BINDTODEVICE", SOL_SOCKET, SO_BINDTODEVICE, 0, {0}},
	{"SO_PEERCRED", SOL_SOCKET, SO_PEERCRED, READ_ONLY, {0}},
	{"SO_COOKIE", SOL_SOCKET, SO_COOKIE, READ_ONLY, {0}},
	{"SO_MEMINFO", SOL_SOCKET, SO_MEMINFO, READ_ONLY, {0}},
	{"TCP_INFO", IPPROTO_TCP, TCP_INFO, READ_ONLY, {0}},
	{"TCP_CONGESTION", IPPROTO_TCP, TCP_CONGESTION, 0, {0}},
	{"TCP_ULP", IPPROTO_TCP, TCP_ULP, 0, {0}},
	{"TCP_CC_INFO", IPPROTO_TCP, TCP_CC_INFO, READ_ONLY, {0}},
	{"TCP_MD5SIG", IPPROTO_TCP, TCP_MD5SIG, 0, {0}},
	{"IP_OPTIONS", IPPROTO_IP, IP_OPTIONS, 0, {0}},
};

static void gets(const struct option *option, int fd) {
	static const int lengths[] = {0, 1, 2, 3, 8, 300, -1};
	char value[300];
	for (size_t i = 0; i < COUNT(lengths); i++) {
		socklen_t length = (socklen_t)lengths[i];
		memset(value, 0x5a, sizeof value);
		int result = getsockopt(fd, option->level, option->number, value, &length);
		printf(" %d:", lengths[i]);
		if (result < 0)
			printf("%s", strerrorname_np(errno));
		else
			printf("%u", length);
	}
	socklen_t length = 4;
	printf(" no value:%s", getsockopt(fd, option->level, option->number, NULL, &length) < 0 ? strerrorname_np(errno) : "ok");
	printf(" no length:%s", getsockopt(fd, option->level, option->number, value, NULL) < 0 ? strerrorname_np(errno) : "ok");
	length = 0;
	printf(" nothing:%s\n", getsockopt(fd, option->level, option->number, NULL, &length) < 0 ? strerrorname_np(errno) : "ok");
}

static void sets(const struct option *option, int fd) {
	static const int lengths[] = {0, 1, 2, 3, 8, 16, -1};
	for (size_t i = 0; i < COUNT(lengths); i++) {
		long long value[40] = {0};
		value[0] = option->values[0];
		int result = setsockopt(fd, option->level, option->number, value, (socklen_t)lengths[i]);
		printf(" %d:%s", lengths[i], result < 0 ? strerrorname_np(errno) : "ok");
	}
	printf(" no value:%s", setsockopt(fd, option->level, option->number, NULL, 4) < 0 ? strerrorname_np(errno) : "ok");
	printf(" nothing:%s\n", setsockopt(fd, option->level, option->number, NULL, 0) < 0 ? strerrorname_np(errno) : "ok");
}

static void both_of(const struct option *option, int fd) {
	printf("  get %s:", option->name);
	gets(option, fd);
	printf("  set %s:", option->name);
	sets(option, fd);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	static const enum state states[] = {FRESH, LISTENING, CONNECTED, ACCEPTED};
	for (size_t k = 0; k < COUNT(states); k++) {
		struct stand stand = stand_in(states[k]);
		say("%s", state_names[states[k]]);
		for (size_t i = 0; i < COUNT(others); i++) both_of(&others[i], stand.fd);
		for (size_t i = 0; i < COUNT(int_options); i++) both_of(&int_options[i], stand.fd);
		drop(stand);
	}
	return 0;
}

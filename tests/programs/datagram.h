/* Datagram sockets on this host, for the programs datagram_*. */
#ifndef DATAGRAM_H
#define DATAGRAM_H
#include "common.h"

static inline int datagram_socket(int flags) {
	return (int)must("socket", socket(local.storage.ss_family, SOCK_DGRAM | flags, 0));
}

/* Bound to ADDRESS and a port that the kernel chooses. */
static inline int bound_socket(int flags) {
	int fd = datagram_socket(flags);
	must("bind", bind_to(fd, local));
	return fd;
}

/* The same, and its name. */
static inline int named_socket(struct address *name) {
	int fd = bound_socket(0);
	*name = name_of(fd);
	return fd;
}

static inline long send_to(int fd, const char *text, struct address to) {
	return sendto(fd, text, strlen(text), 0, sockaddr_of(&to), to.length);
}

static inline struct address any_address(int family) {
	return parse_address(family == AF_INET ? "0.0.0.0" : "::");
}

static inline bool same_address(struct address a, struct address b) {
	return a.length == b.length && !memcmp(&a.storage, &b.storage, a.length);
}

/* Waits for a datagram and prints it, with whether it came from `from`. */
static inline void report_next(const char *what, int fd, struct address from) {
	char text[200] = {0};
	struct address source = {.length = sizeof source.storage};
	wait_for(fd, POLLIN);
	ssize_t got = recvfrom(fd, text, sizeof text - 1, MSG_DONTWAIT, sockaddr_of(&source), &source.length);
	if (got < 0)
		say("%s: %s", what, strerrorname_np(errno));
	else
		say("%s: %zd bytes \"%s\", from the sender: %s", what, got, text, yes_no(same_address(source, from)));
}

/* Nothing is there, and nothing comes soon. */
static inline void report_nothing(const char *what, int fd) {
	char byte;
	struct pollfd one = {.fd = fd, .events = POLLIN};
	int ready = poll(&one, 1, 30);
	ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
	say("%s: poll %d, recv %zd %s", what, ready, got, got < 0 ? strerrorname_np(errno) : "");
}
#endif

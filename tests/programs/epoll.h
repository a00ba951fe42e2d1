/* Shared by the epoll programs. User data are characters: they name the members in the transcripts. */
#ifndef EPOLL_H
#define EPOLL_H
#include "common.h"
#include <sys/epoll.h>

#define MOST 16

static inline int new_set(void) { return (int)must("epoll_create1", epoll_create1(0)); }

static inline int control(int set, int operation, int fd, uint32_t events, char name) {
	struct epoll_event event = {.events = events, .data.u64 = (uint64_t)name};
	return epoll_ctl(set, operation, fd, &event);
}

static inline void add(int set, int fd, uint32_t events, char name) { must("EPOLL_CTL_ADD", control(set, EPOLL_CTL_ADD, fd, events, name)); }

static inline void modify(int set, int fd, uint32_t events, char name) {
	must("EPOLL_CTL_MOD", control(set, EPOLL_CTL_MOD, fd, events, name));
}

static inline void drop(int set, int fd) { must("EPOLL_CTL_DEL", epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL)); }

static inline int by_name(const void *a, const void *b) {
	const struct epoll_event *one = a, *other = b;
	return (one->data.u64 > other->data.u64) - (one->data.u64 < other->data.u64);
}

/* Waits for events and prints them by name: which comes first is nobody's promise. */
static inline int show(const char *what, int set, int timeout) {
	struct epoll_event events[MOST];
	int found = epoll_wait(set, events, MOST, timeout);
	if (found < 0) {
		report(what, found);
		return found;
	}
	qsort(events, (size_t)found, sizeof events[0], by_name);
	printf("%s:", what);
	for (int i = 0; i < found; i++) printf(" %c=%s", (char)events[i].data.u64, event_names((short)events[i].events));
	printf("%s\n", found ? "" : " none");
	return found;
}

/* Whatever comes within a while, in how many waits ever. */
static inline void swallow(int set) {
	struct epoll_event events[MOST];
	while (must("epoll_wait", epoll_wait(set, events, MOST, 0)) > 0) {
	}
}
#endif

/* Servers that echo, by the ways in which a loop may wait. */
#ifndef DEFERRED_LOOP_H
#define DEFERRED_LOOP_H
#include "deferred.h"
#include <sys/epoll.h>

/* How the serving loop waits. */
enum waiting { BLOCK, POLL, SELECT, EPOLL, EPOLL_EDGE, WAYS };

static const char *const way_names[] = {"blocking", "poll", "select", "epoll", "epoll, edge-triggered"};

/* Waits until one of the events is there. */
static inline void wait_by(enum waiting way, int set, int fd, short events) {
	switch (way) {
	case BLOCK: break;
	case POLL: {
		struct pollfd one = {.fd = fd, .events = events};
		if (must("poll", poll(&one, 1, ARRIVAL_MS)) == 0) say("FAILED: poll's time is over");
		break;
	}
	case SELECT: {
		fd_set in, out;
		FD_ZERO(&in);
		FD_ZERO(&out);
		if (events & POLLIN) FD_SET(fd, &in);
		if (events & POLLOUT) FD_SET(fd, &out);
		struct timeval limit = {ARRIVAL_MS / 1000, 0};
		if (must("select", select(fd + 1, &in, &out, NULL, &limit)) == 0) say("FAILED: select's time is over");
		break;
	}
	default: {
		struct epoll_event event = {.events = (uint32_t)events | (way == EPOLL_EDGE ? EPOLLET : 0)};
		if (way == EPOLL) must("EPOLL_CTL_MOD", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
		if (must("epoll_wait", epoll_wait(set, &event, 1, ARRIVAL_MS)) == 0) say("FAILED: epoll_wait's time is over");
	}
	}
}

/* Echoes like a server with one loop for all: reads what is there, waits when nothing is. */
static inline void echo_by(int fd, long number) {
	enum waiting way = (enum waiting)number;
	if (way == BLOCK) return echo(fd, 30000);
	int set = -1;
	if (way >= EPOLL) {
		struct epoll_event event = {.events = way == EPOLL ? 0 : EPOLLIN | EPOLLOUT | EPOLLET};
		set = (int)must("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
		must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	}
	set_nonblocking(fd, true);
	static char buffer[50000];
	size_t have = 0, sent = 0;
	for (;;) {
		if (sent == have) {
			ssize_t got = recv(fd, buffer, sizeof buffer, 0);
			if (got == 0) break;
			if (got > 0) have = (size_t)got, sent = 0;
			if (got < 0 && errno != EAGAIN) die("recv");
			if (got < 0) wait_by(way, set, fd, POLLIN);
		} else {
			ssize_t now = send(fd, buffer + sent, have - sent, MSG_NOSIGNAL);
			if (now > 0) sent += (size_t)now;
			if (now < 0 && errno != EAGAIN) die("send");
			if (now < 0) wait_by(way, set, fd, POLLOUT);
		}
	}
	if (set >= 0) close(set);
}

#endif

/* A connection that takes no more bytes. */
#ifndef FILL_H
#define FILL_H
#include "common.h"

/* Sends until nothing has been taken for a while: TCP's buffers grow, and what is on its way makes room. */
static inline void fill(int fd) {
	static char block[1 << 18];
	int64_t last = now_us();
	while (now_us() - last < 150000) {
		ssize_t sent = send(fd, block, sizeof block, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (sent > 0)
			last = now_us();
		else if (sent < 0 && errno != EAGAIN)
			die("fill");
		else
			sleep_ms(2);
	}
}

/* Reads whatever comes for a while. */
static inline void drain(int fd) {
	static char block[1 << 18];
	int64_t last = now_us();
	while (now_us() - last < 100000)
		if (recv(fd, block, sizeof block, MSG_DONTWAIT) > 0)
			last = now_us();
		else
			sleep_ms(2);
}

#endif

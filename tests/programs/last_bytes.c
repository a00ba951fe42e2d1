// libs: -lrdmacm
// last_bytes ADDRESS PORT ROUNDS serve|ask: in each round of the r* functions the client sends a MiB and gets one back, three times, and the server
// closes as soon as its own is handed over. The client must get all of it: "rounds N". (soft-iWARP drops what a peer's kernel has not
// handed over when the connection is ended at once.)
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1 << 20 };

static char bytes[SIZE];

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void large_buffers(int fd) {
	int size = 1 << 19;
	if (rsetsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, sizeof size)) fail("SO_SNDBUF");
	if (rsetsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size)) fail("SO_RCVBUF");
}

static void transfer(int fd, int sending) {
	for (size_t at = 0; at < SIZE;) {
		ssize_t part = sending ? rsend(fd, bytes + at, SIZE - at, MSG_DONTWAIT) : rrecv(fd, bytes + at, SIZE - at, MSG_DONTWAIT);
		if (part < 0 && errno == EAGAIN) continue; // busy, as rstream is
		if (part < 0) fail(sending ? "rsend" : "rrecv");
		if (part == 0) {
			printf("end of file at %zu of %d\n", at, SIZE);
			exit(1);
		}
		at += (size_t)part;
	}
}

int main(int argc, char **argv) {
	if (argc != 5) return 2;
	struct sockaddr_in where = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(argv[2]))};
	inet_pton(AF_INET, argv[1], &where.sin_addr);
	int rounds = atoi(argv[3]), serves = !strcmp(argv[4], "serve");
	int listener = rsocket(AF_INET, SOCK_STREAM, 0);
	large_buffers(listener);
	if (serves && (rbind(listener, (struct sockaddr *)&where, sizeof where) || rlisten(listener, 1))) fail("rlisten");
	for (int round = 0; round < rounds; round++) {
		int fd = serves ? raccept(listener, NULL, NULL) : rsocket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0) fail("raccept");
		if (!serves) large_buffers(fd);
		if (!serves && rconnect(fd, (struct sockaddr *)&where, sizeof where)) fail("rconnect");
		for (int turn = 0; turn < 3; turn++) {
			transfer(fd, !serves);
			transfer(fd, serves);
		}
		rshutdown(fd, 2);
		rclose(fd);
	}
	printf("rounds %d\n", rounds);
	return 0;
}

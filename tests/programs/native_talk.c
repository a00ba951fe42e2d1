// native_talk [ADDRESS]: a program of the r* functions, as they are used by programs that are written for them: 4 MB from one thread to
// the other, with what rpoll, rgetsockopt, rfcntl and the naming calls say on the way.
#include "common.h"
#include <rdma/rsocket.h>

#define BYTES 4000000

static struct address where;

/* A connection by the path that another one has found: RDMA_ROUTE. */
static void connects_by(const unsigned char *path, socklen_t length) {
	int fd = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
	unsigned char got[72 * 2];
	if (rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, path, length - 1) == 0) say("a part of a path was taken");
	must("rsetsockopt", rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, path, length));
	must("rconnect", rconnect(fd, sockaddr_of(&where), where.length));
	socklen_t room = sizeof got;
	must("rgetsockopt", rgetsockopt(fd, SOL_RDMA, RDMA_ROUTE, got, &room));
	say(room == length && memcmp(path, got, 48) == 0 ? "by the path" : "another path");
	must("rclose", rclose(fd));
}

static void *sends(void *unused) {
	(void)unused;
	int fd = rsocket(where.storage.ss_family, SOCK_STREAM, 0), value = 0;
	socklen_t length = sizeof value;
	must("rconnect", rconnect(fd, sockaddr_of(&where), where.length));
	must("rgetsockopt", rgetsockopt(fd, SOL_RDMA, RDMA_SQSIZE, &value, &length));
	if (value < 16) say("RDMA_SQSIZE is %d", value);
	unsigned char path[72 * 4];
	length = sizeof path;
	must("rgetsockopt", rgetsockopt(fd, SOL_RDMA, RDMA_ROUTE, path, &length));
	say("%d bytes of path", (int)length);
	if (length && rsetsockopt(fd, SOL_RDMA, RDMA_ROUTE, path, length) == 0) say("a path was set too late");
	if (length) connects_by(path, length);
	static unsigned char bytes[BYTES];
	for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)(i * 7);
	for (long done = 0; done < BYTES;) done += must("rsend", rsend(fd, bytes + done, (size_t)(BYTES - done), 0));
	must("rshutdown", rshutdown(fd, SHUT_WR));
	char end;
	if (must("rrecv", rrecv(fd, &end, 1, 0)) != 0) say("more than the end");
	must("rclose", rclose(fd));
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = (int)must("rsocket", rsocket(local.storage.ss_family, SOCK_STREAM, 0)), one = 1;
	must("rsetsockopt", rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	must("rbind", rbind(listener, sockaddr_of(&local), local.length));
	must("rlisten", rlisten(listener, 2));
	where.length = sizeof where.storage;
	must("rgetsockname", rgetsockname(listener, sockaddr_of(&where), &where.length));
	pthread_t sender;
	pthread_create(&sender, NULL, sends, NULL);
	struct address peer = {.length = sizeof peer.storage};
	int fd = (int)must("raccept", raccept(listener, sockaddr_of(&peer), &peer.length));
	must("rfcntl", rfcntl(fd, F_SETFL, O_NONBLOCK));
	long total = 0;
	bool good = true;
	for (;;) {
		static unsigned char bytes[1 << 16];
		struct pollfd entry = {fd, POLLIN, 0};
		if (must("rpoll", rpoll(&entry, 1, ARRIVAL_MS)) != 1) die("rpoll");
		ssize_t some = must("rrecv", rrecv(fd, bytes, sizeof bytes, 0));
		if (some == 0) break;
		for (ssize_t i = 0; i < some; i++) good &= bytes[i] == (unsigned char)((total + i) * 7);
		total += some;
	}
	must("rclose", rclose(fd));
	must("rclose", rclose(listener));
	pthread_join(sender, NULL);
	say(good && total == BYTES ? "all arrived" : "%ld bytes", total);
	return 0;
}

// libs: -lrdmacm
/* iomap_rounds ADDRESS PORT ROUNDS [serve|ask]: maps memory, has the other end write to it, is told, compares, unmaps; ROUNDS times at each
 * end by turns. One process in two, or one end of two programs (another library may be at the other end). What a round has is random: size,
 * place, offset (or the address), one to four mappings at once, pieces, whether the source is registered, whether the owner sleeps in a call or only
 * looks at its memory. Prints what it has moved, or what is wrong. */
#include "common.h"
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ARENA (1 << 20)
#define MOST 4
#define TABLE 8
#define GUARD 0xee

struct piece {
	int64_t offset;
	uint32_t at, length;
};

struct order {
	uint32_t seed, count, looks, registered;
	struct piece pieces[MOST];
};

static unsigned char *arena, *source;
static uint64_t moved, state = 88172645463325252u;

static uint32_t below(uint32_t bound) {
	state ^= state << 13, state ^= state >> 7, state ^= state << 17;
	return (uint32_t)((state >> 33) % bound);
}

/* Byte number at of the piece of a round. */
static unsigned char byte_of(uint32_t seed, uint32_t piece, uint32_t at) {
	uint32_t mixed = (seed + piece * 7919u) * 2654435761u + at * 2246822519u;
	return (unsigned char)((mixed ^ mixed >> 15) % 200); /* never the guard */
}

static void wrong(const char *what, long have, long want) {
	printf("FAILED %s: %ld, not %ld (%s)\n", what, have, want, strerror(errno));
	exit(1);
}

static void put_all(int fd, const void *bytes, size_t length) {
	ssize_t sent = rsend(fd, bytes, length, 0);
	if (sent != (ssize_t)length) wrong("rsend", sent, (long)length);
}

static void take_all(int fd, void *bytes, size_t length) {
	ssize_t received = rrecv(fd, bytes, length, MSG_WAITALL);
	if (received != (ssize_t)length) wrong("rrecv", received, (long)length);
}

static double seconds(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void make(struct order *order, uint32_t round) {
	uint32_t at = 0;
	order->seed = round * 31u + 1;
	order->count = 1 + below(MOST);
	order->looks = below(4) == 0;
	order->registered = below(3) == 0;
	for (uint32_t i = 0; i < order->count; i++) {
		struct piece *piece = &order->pieces[i];
		uint32_t most = ARENA / MOST - 64;
		uint32_t sizes[] = {1 + below(64), 1 + below(5000), 1 + below(most / 8), below(8) ? 1 + below(70000) : most};
		piece->length = sizes[below(4)];
		piece->at = at + below(32);
		/* offsets that lie side by side: what is written there may fall into two mappings */
		piece->offset = below(4) ? (int64_t)at * 2 : -1;
		at = piece->at + piece->length;
	}
}

/* The owner: maps, tells, waits, compares. */
static void own(int fd, uint32_t round) {
	struct order order;
	uint32_t note = 0;

	make(&order, round);
	memset(arena, GUARD, ARENA);
	for (uint32_t i = 0; i < order.count; i++) {
		struct piece *piece = &order.pieces[i];
		int64_t asked = piece->offset;
		piece->offset = riomap(fd, arena + piece->at, piece->length, PROT_WRITE, 0, asked);
		if (piece->offset != (asked == -1 ? (int64_t)(uintptr_t)(arena + piece->at) : asked)) wrong("riomap", piece->offset, asked);
	}
	put_all(fd, &order, sizeof order);
	if (order.looks) {
		/* Nothing is called while the bytes come: the last byte of the last piece is written last. */
		struct piece *last = &order.pieces[order.count - 1];
		volatile unsigned char *end = arena + last->at + last->length - 1;
		double until = seconds() + 60;
		while (*end == GUARD)
			if (seconds() > until) wrong("the last byte", *end, 0);
	}
	take_all(fd, &note, sizeof note);
	if (note != order.seed) wrong("the note", note, order.seed);
	for (uint32_t i = 0, at = 0; i <= order.count; i++) {
		uint32_t until = i < order.count ? order.pieces[i].at : ARENA;
		for (; at < until; at++)
			if (arena[at] != GUARD) wrong("a byte beside the mappings", arena[at], GUARD);
		for (; i < order.count && at < until + order.pieces[i].length; at++)
			if (arena[at] != byte_of(order.seed, i, at - until)) wrong("a byte", arena[at], byte_of(order.seed, i, at - until));
	}
	for (uint32_t i = 0; i < order.count; i++) {
		moved += order.pieces[i].length;
		if (riounmap(fd, arena + order.pieces[i].at, order.pieces[i].length)) wrong("riounmap", -1, 0);
	}
	put_all(fd, &note, sizeof note);
}

/* The other end: writes in pieces, tells. */
static void write_to(int fd) {
	struct order order;
	uint32_t note;

	take_all(fd, &order, sizeof order);
	if (order.registered && riomap(fd, source, ARENA, PROT_NONE, 0, 0)) wrong("riomap of the source", -1, 0);
	for (uint32_t i = 0; i < order.count; i++) {
		struct piece *piece = &order.pieces[i];
		for (uint32_t at = 0; at < piece->length; at++) source[at] = byte_of(order.seed, i, at);
		for (uint32_t done = 0; done < piece->length;) {
			uint32_t part = below(3) ? piece->length - done : 1 + below(piece->length - done);
			size_t written = riowrite(fd, source + done, part, piece->offset + done, 0);
			if (written != part) wrong("riowrite", (long)written, part);
			done += part;
		}
		moved += piece->length;
		/* It is the program's again. */
		memset(source, 0xdd, piece->length);
	}
	if (order.registered && riounmap(fd, source, ARENA)) wrong("riounmap of the source", -1, 0);
	put_all(fd, &order.seed, sizeof order.seed);
	take_all(fd, &note, sizeof note);
	if (note != order.seed) wrong("the last note", note, order.seed);
}

static void run(int fd, int first, uint32_t rounds) {
	double start = seconds();
	for (uint32_t round = 0; round < rounds; round++) {
		if ((round % 2 == 0) == first)
			own(fd, round);
		else
			write_to(fd);
	}
	printf("%s: %u rounds\n", first ? "server" : "client", rounds);
	fprintf(stderr, "%llu bytes, %.2f s\n", (unsigned long long)moved, seconds() - start);
	rshutdown(fd, SHUT_RDWR);
	rclose(fd);
}

static int with_table(int fd) {
	int entries = TABLE;
	socklen_t length = sizeof entries;
	must("RDMA_IOMAPSIZE", rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries));
	must("RDMA_IOMAPSIZE", rgetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, &length));
	if (entries != TABLE) wrong("RDMA_IOMAPSIZE", entries, TABLE);
	return fd;
}

static int serve(void) {
	int one = 1, listener = with_table(rsocket(local.storage.ss_family, SOCK_STREAM, 0));
	must("SO_REUSEADDR", rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	must("rbind", rbind(listener, sockaddr_of(&local), local.length));
	must("rlisten", rlisten(listener, 4));
	int fd = (int)must("raccept", raccept(listener, NULL, NULL));
	rclose(listener);
	return fd;
}

static int ask(void) {
	for (int tries = 0;; tries++) {
		int fd = with_table(rsocket(local.storage.ss_family, SOCK_STREAM, 0));
		if (rconnect(fd, sockaddr_of(&local), local.length) == 0) return fd;
		if (tries == 100) die("rconnect");
		rclose(fd);
		usleep(100000);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	*port_of(&local) = htons((uint16_t)argument(1, 7000));
	uint32_t rounds = (uint32_t)argument(2, 1000);
	const char *end = argc > 4 ? argv[4] : "";
	alarm(300);
	arena = malloc(ARENA);
	source = malloc(ARENA);
	pid_t child = *end ? -1 : (pid_t)must("fork", fork());
	int serves = *end ? strcmp(end, "serve") == 0 : child != 0;
	if (!serves) state = 1181783497276652981u;
	run(serves ? serve() : ask(), serves, rounds);
	if (child > 0) {
		int status;
		must("waitpid", waitpid(child, &status, 0));
		if (status) wrong("the client's status", status, 0);
	}
	return 0;
}

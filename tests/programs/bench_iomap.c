// libs: -lrdmacm
/* bench_iomap ADDRESS PORT MIB [SIZE...]: what riowrite moves against rsend, in MB/s, one process to another: SIZE bytes a call (65536 and
 * 1048576), MIB of them. "rsend": the other end reads. "riowrite": to memory that the other end has mapped. "registered": the same from
 * memory that is mapped here, too (PROT_NONE). The time ends with the other end's word that all has come. Run by scripts/bench-iomap. */
#include "common.h"
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SEND, PLACE, REGISTERED, MODES, OVER, MOST = 4 << 20, ROUNDS = 5 };
static const char *const modes[] = {"rsend", "riowrite", "registered"};

struct order {
	int64_t mode, size, count;
};

static void put(int fd, const void *bytes, size_t length) {
	if (rsend(fd, bytes, length, 0) != (ssize_t)length) die("rsend");
}

static void take(int fd, void *bytes, size_t length) {
	if (rrecv(fd, bytes, length, MSG_WAITALL) != (ssize_t)length) die("rrecv");
}

static int with_table(int fd) {
	int entries = 2;
	must("RDMA_IOMAPSIZE", rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries));
	return fd;
}

static void serve(int listener, char *memory) {
	struct order order;
	int fd = (int)must("raccept", raccept(listener, NULL, NULL));

	must("riomap", riomap(fd, memory, MOST, PROT_WRITE, 0, 0));
	for (put(fd, "", 1);; put(fd, "", 1)) {
		char last = 0;
		take(fd, &order, sizeof order);
		if (order.mode == OVER) break;
		for (int64_t i = 0; order.mode == SEND && i < order.count; i++) take(fd, memory, (size_t)order.size);
		take(fd, &last, 1);
		if (memory[order.size - 1] != last) die("the last byte");
	}
	put(fd, "", 1);
	rclose(fd);
}

static int by_value(const void *one, const void *other) {
	double a = *(const double *)one, b = *(const double *)other;
	return (a > b) - (a < b);
}

static double measure(int fd, char *source, struct order order) {
	static char last;
	double values[ROUNDS];
	char byte;

	for (int round = 0; round < ROUNDS; round++) {
		source[order.size - 1] = ++last;
		int64_t start = now_us();
		put(fd, &order, sizeof order);
		for (int64_t i = 0; i < order.count; i++) {
			if (order.mode == SEND)
				put(fd, source, (size_t)order.size);
			else if (riowrite(fd, source, (size_t)order.size, 0, 0) != (size_t)order.size)
				die("riowrite");
		}
		put(fd, &last, 1);
		take(fd, &byte, 1);
		int64_t spent = now_us() - start;
		values[round] = (double)order.size * (double)order.count / (double)(spent ? spent : 1);
	}
	qsort(values, ROUNDS, sizeof *values, by_value);
	return values[ROUNDS / 2];
}

static void ask(char *source, int64_t total, int64_t size) {
	char byte;
	int fd = with_table(rsocket(local.storage.ss_family, SOCK_STREAM, 0));
	struct order order = {.size = size, .count = total / size ? total / size : 1};

	must("rconnect", rconnect(fd, sockaddr_of(&local), local.length));
	take(fd, &byte, 1);
	for (order.mode = SEND; order.mode < MODES; order.mode++) {
		if (order.mode == REGISTERED) must("riomap", riomap(fd, source, MOST, PROT_NONE, 0, 0));
		say("%s-%lld %.1f MB/s", modes[order.mode], (long long)size, measure(fd, source, order));
	}
	order.mode = OVER;
	put(fd, &order, sizeof order);
	take(fd, &byte, 1);
	rclose(fd);
}

int main(int argc, char **argv) {
	static const int64_t usual[] = {65536, 1048576};
	int one = 1, go[2], sizes = argc > 4 ? argc - 4 : (int)COUNT(usual);
	char byte = 0;

	begin(argc, argv);
	alarm(1000);
	*port_of(&local) = htons((uint16_t)argument(1, 7000));
	int64_t total = argument(2, 64) << 20;
	char *memory = mmap(NULL, MOST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	must("pipe", pipe(go));
	pid_t child = (pid_t)must("fork", fork());
	if (child == 0) {
		must("read", read(go[0], &byte, 1));
		memset(memory, 1, MOST);
		for (int i = 0; i < sizes; i++) ask(memory, total, argc > 4 ? strtoll(argv[4 + i], NULL, 0) : usual[i]);
		return 0;
	}
	int listener = with_table(rsocket(local.storage.ss_family, SOCK_STREAM, 0));
	must("SO_REUSEADDR", rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	must("rbind", rbind(listener, sockaddr_of(&local), local.length));
	must("rlisten", rlisten(listener, 4));
	must("write", write(go[1], &byte, 1));
	for (int i = 0; i < sizes; i++) serve(listener, memory);
	int status;
	must("waitpid", waitpid(child, &status, 0));
	return status != 0;
}

// libs: -lrdmacm
/* iomap_errors ADDRESS PORT: what riomap, riounmap, riowrite and RDMA_IOMAPSIZE take and refuse, at the edges and in odd states. */
#include "common.h"
#include <rdma/rsocket.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE 4096

static struct address where;

static void size_of_table(const char *what, int fd, int entries) {
	int kept = -1;
	socklen_t length = sizeof kept;
	char text[64];

	snprintf(text, sizeof text, "%s of %d", what, entries);
	report(text, rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries));
	must("RDMA_IOMAPSIZE", rgetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &kept, &length));
	say("  is %d", kept);
}

static void table(int fd, int entries) {
	if (entries) must("RDMA_IOMAPSIZE", rsetsockopt(fd, SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries));
}

/* Both ends, with tables of these sizes. The server's is set when it listens already. */
static void connected(int ends[2], int client_entries, int server_entries) {
	int one = 1, listener = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
	must("SO_REUSEADDR", rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	must("rbind", rbind(listener, sockaddr_of(&where), where.length));
	must("rlisten", rlisten(listener, 4));
	table(listener, server_entries);
	ends[0] = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
	table(ends[0], client_entries);
	must("rconnect", rconnect(ends[0], sockaddr_of(&where), where.length));
	ends[1] = (int)must("raccept", raccept(listener, NULL, NULL));
	rclose(listener);
}

/* Whatever was sent from one end has come to the other afterwards. */
static void note(int from, int to) {
	char byte = 'n';
	must("rsend", rsend(from, &byte, 1, 0));
	must("rrecv", rrecv(to, &byte, 1, 0));
}

static void *pages(int count) { return mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

static void nowhere(void) {
	char byte = 0;
	int pipes[2], fresh = rsocket(AF_INET, SOCK_STREAM, 0), other = rsocket(AF_UNIX, SOCK_STREAM, 0);
	must("pipe", pipe(pipes));
	int numbers[] = {-1, pipes[0], other, fresh};
	const char *names[] = {"no descriptor", "a pipe", "a socket of the kernel's", "not connected"};

	for (size_t i = 0; i < COUNT(numbers); i++) {
		say("%s", names[i]);
		report("  riomap", riomap(numbers[i], &byte, 1, PROT_WRITE, 0, 0));
		report("  riounmap", riounmap(numbers[i], &byte, 1));
		report("  riowrite", (long)riowrite(numbers[i], &byte, 1, 0, 0));
	}
	size_of_table("a table", fresh, 128);
	size_of_table("a table", fresh, 129);
	size_of_table("a table", fresh, 1000000);
	size_of_table("a table", fresh, -1);
	rclose(fresh);
	close(other);
	close(pipes[0]);
	close(pipes[1]);
}

static void arguments(void) {
	int ends[2];
	char *memory = pages(3), *last;

	connected(ends, 3, 2);
	mprotect(memory + PAGE, PAGE, PROT_READ);
	munmap(memory + 2 * PAGE, PAGE);
	size_of_table("a table, connected,", ends[0], 5);
	report("PROT_READ", riomap(ends[0], memory, 1, PROT_READ, 0, 0));
	report("PROT_EXEC", riomap(ends[0], memory, 1, PROT_EXEC | PROT_WRITE, 0, 0));
	report("of no length", riomap(ends[0], memory, 0, PROT_WRITE, 0, 0));
	report("too long", riomap(ends[0], memory, (size_t)1 << 32, PROT_WRITE, 0, 0));
	report("offset -2", riomap(ends[0], memory, 1, PROT_WRITE, 0, -2));
	report("at the very end", riomap(ends[0], memory, 2, PROT_WRITE, 0, INT64_MAX - 1));
	report("NULL", riomap(ends[0], NULL, 1, PROT_WRITE, 0, 0));
	report("no memory", riomap(ends[0], memory, 2 * PAGE + 1, PROT_NONE, 0, 0));
	report("read-only memory", riomap(ends[0], memory, 2 * PAGE, PROT_WRITE, 0, 0));
	report("  to send from", riomap(ends[0], memory, 2 * PAGE, PROT_NONE, 0, 0));
	report("  and back", riounmap(ends[0], memory, 2 * PAGE));
	say("offset -1: %s", yes_no(riomap(ends[0], memory + 5, 7, PROT_WRITE, 0, -1) == (off_t)(uintptr_t)(memory + 5)));
	report("another", riomap(ends[0], memory, 7, PROT_WRITE, 0, 9));
	report("one more than the peer's table has", riomap(ends[0], memory, 8, PROT_WRITE, 0, 9));
	report("  one to send from", riomap(ends[0], memory, 8, PROT_NONE, 0, 9));
	report("riounmap of another length", riounmap(ends[0], memory + 5, 8));
	report("riounmap of another place", riounmap(ends[0], memory + 4, 7));
	report("riounmap", riounmap(ends[0], memory + 5, 7));
	report("  again", riounmap(ends[0], memory + 5, 7));
	report("the entry is free", riomap(ends[0], memory, 8, PROT_WRITE, 0, 9));
	report("the other end", riomap(ends[1], last = pages(1), PAGE, PROT_WRITE, 0, INT64_MAX - PAGE));
	note(ends[1], ends[0]);
	report("the last byte there is", (long)riowrite(ends[0], "x", 1, INT64_MAX - 1, 0));
	note(ends[0], ends[1]);
	say("  is %c", last[PAGE - 1]);
	report("riowrite, offset -1", (long)riowrite(ends[0], "x", 1, -1, 0));
	report("riowrite from NULL", (long)riowrite(ends[0], NULL, 1, INT64_MAX - 1, 0));
	report("riowrite of nothing", (long)riowrite(ends[0], "x", 0, INT64_MAX - 1, 0));
	rclose(ends[0]);
	rclose(ends[1]);
}

static void no_table(void) {
	int ends[2];
	char byte;

	connected(ends, 0, 2);
	report("the peer has no table", riomap(ends[1], &byte, 1, PROT_WRITE, 0, 0));
	report("  and cannot write", (long)riowrite(ends[0], "x", 1, 0, 0));
	rclose(ends[0]);
	rclose(ends[1]);
}

static void edges(void) {
	int ends[2];
	char memory[] = "................", text[] = "abcdefghijklmnop";

	connected(ends, 8, 8);
	must("riomap", riomap(ends[1], memory, 4, PROT_WRITE, 0, 100));
	must("riomap", riomap(ends[1], memory + 8, 4, PROT_WRITE, 0, 104));
	note(ends[1], ends[0]);
	report("before", (long)riowrite(ends[0], text, 4, 97, 0));
	report("behind", (long)riowrite(ends[0], text, 4, 108, 0));
	report("the first byte", (long)riowrite(ends[0], text, 1, 100, 0));
	report("the last byte", (long)riowrite(ends[0], text + 1, 1, 107, 0));
	report("over the end", (long)riowrite(ends[0], text + 2, 4, 106, 0));
	report("across two mappings", (long)riowrite(ends[0], text + 4, 4, 102, 0));
	note(ends[0], ends[1]);
	say("  %s", memory);
	must("riomap", riomap(ends[1], memory + 12, 4, PROT_WRITE, 0, 102));
	note(ends[1], ends[0]);
	report("what is mapped twice", (long)riowrite(ends[0], "123456", 6, 100, 0));
	note(ends[0], ends[1]);
	say("  %s", memory);
	must("riounmap", riounmap(ends[1], memory, 4));
	note(ends[1], ends[0]);
	report("without the first", (long)riowrite(ends[0], "ABCDEF", 6, 102, 0));
	report("  where that was", (long)riowrite(ends[0], "ABCDEF", 6, 100, 0));
	note(ends[0], ends[1]);
	say("  %s", memory);
	rclose(ends[0]);
	rclose(ends[1]);
}

/* The owner's memory goes without a word, or the owner does. */
static void gone(void) {
	int ends[2], status;
	char *memory = pages(2);

	connected(ends, 8, 8);
	must("riomap", riomap(ends[1], memory, 2 * PAGE, PROT_WRITE, 0, 0));
	note(ends[1], ends[0]);
	munmap(memory + PAGE, PAGE);
	report("half of the memory is gone", (long)riowrite(ends[0], "xy", 2, PAGE - 1, 0));
	note(ends[0], ends[1]);
	say("  %c, and the connection goes on", memory[PAGE - 1]);
	must("riounmap", riounmap(ends[1], memory, 2 * PAGE));
	note(ends[1], ends[0]);
	report("unmapped", (long)riowrite(ends[0], "xy", 2, 0, 0));

	must("riomap", riomap(ends[1], memory, PAGE, PROT_WRITE, 0, 0));
	note(ends[1], ends[0]);
	fflush(stdout);
	pid_t child = (pid_t)must("fork", fork());
	if (child == 0) {
		report("in a child: riowrite", (long)riowrite(ends[0], "xy", 2, 0, 0));
		report("in a child: riomap", riomap(ends[0], memory, 2, PROT_WRITE, 0, 0));
		report("in a child: riounmap", riounmap(ends[1], memory, PAGE));
		exit(0);
	}
	must("waitpid", waitpid(child, &status, 0));
	report("in the parent", (long)riowrite(ends[0], "xy", 2, 0, 0));
	note(ends[0], ends[1]);
	memset(memory, '-', PAGE);
	rclose(ends[1]);
	long written = 0;
	for (int tries = 0; tries < 1000 && written >= 0; tries++, usleep(1000)) written = (long)riowrite(ends[0], "xy", 2, 0, 0);
	say("the owner has closed: %ld %s", written, errno == EPIPE || errno == ECONNRESET ? "EPIPE or ECONNRESET" : strerrorname_np(errno));
	say("  its memory is written: %s", yes_no(memory[0] != '-'));
	report("riomap then", riomap(ends[0], memory, 1, PROT_WRITE, 0, 0));
	rclose(ends[0]);
}

/* The owner's process stands still. */
static void full(void) {
	enum { MOST = 8 << 20 };
	int to_child[2], to_parent[2], status, one = 1;
	char byte = 0, *memory = malloc(MOST);
	long written, total = 0;

	must("pipe", pipe(to_child));
	must("pipe", pipe(to_parent));
	fflush(stdout);
	pid_t child = (pid_t)must("fork", fork());
	int listener, fd;
	if (child == 0) {
		must("read", read(to_child[0], &byte, 1));
		fd = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
		table(fd, 2);
		must("rconnect", rconnect(fd, sockaddr_of(&where), where.length));
		memset(memory, 0, MOST);
		must("riomap", riomap(fd, memory, MOST, PROT_WRITE, 0, 0));
		must("rsend", rsend(fd, &byte, 1, 0));
		must("rrecv", rrecv(fd, &byte, 1, 0));
		long right = 0;
		while (right < MOST && memory[right] == (char)(right >> 12)) right++;
		say("all bytes are right: %s", yes_no(right == MOST));
		exit(0);
	}
	listener = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
	must("SO_REUSEADDR", rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	table(listener, 2);
	must("rbind", rbind(listener, sockaddr_of(&where), where.length));
	must("rlisten", rlisten(listener, 4));
	must("write", write(to_child[1], &byte, 1));
	fd = (int)must("raccept", raccept(listener, NULL, NULL));
	must("rrecv", rrecv(fd, &byte, 1, 0));
	must("SIGSTOP", kill(child, SIGSTOP));
	must("waitpid", waitpid(child, &status, WUNTRACED));
	for (long at = 0; at < MOST; at++) memory[at] = (char)(at >> 12);
	while ((written = (long)riowrite(fd, memory + total, (size_t)(MOST - total), total, MSG_DONTWAIT)) > 0) total += written;
	report("an owner that does not take it", written);
	say("  some was taken, not all: %s", yes_no(total > 0 && total < MOST));
	must("SIGCONT", kill(child, SIGCONT));
	written = (long)riowrite(fd, memory + total, (size_t)(MOST - total), total, 0);
	say("the rest: %s", yes_no(written == MOST - total));
	must("rsend", rsend(fd, &byte, 1, 0));
	must("waitpid", waitpid(child, &status, 0));
	say("status %d", status);
	rclose(fd);
	rclose(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 7000));
	nowhere();
	arguments();
	no_table();
	edges();
	gone();
	full();
	return 0;
}

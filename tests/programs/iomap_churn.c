// libs: -lrdmacm
/* iomap_churn ADDRESS PORT SECONDS: memory is mapped and unmapped while the peer writes to it all the time. What riounmap has given back is
 * written no more. Over shared memory: a device would end the connection. */
#include "common.h"
#include <rdma/rsocket.h>
#include <stdatomic.h>
#include <sys/mman.h>

#define LENGTH 100000

static atomic_int over;
static atomic_long written;
static int ends[2];

static void *writes(void *unused) {
	static char bytes[LENGTH];
	(void)unused;
	memset(bytes, 'w', sizeof bytes);
	while (!over) {
		size_t taken = riowrite(ends[0], bytes, sizeof bytes, 0, 0);
		if (taken == (size_t)-1) die("riowrite");
		written += (long)taken;
	}
	return NULL;
}

/* Another thread that waits in a call, and gets a byte now and then. */
static void *receives(void *unused) {
	char byte;
	(void)unused;
	while (rrecv(ends[1], &byte, 1, 0) == 1)
		if (byte == 'e') return NULL;
	die("rrecv");
	return NULL;
}

int main(int argc, char **argv) {
	int entries = 1, one = 1;
	long rounds = 0, seen = 0, late = 0;

	begin(argc, argv);
	*port_of(&local) = htons((uint16_t)argument(1, 7000));
	int listener = rsocket(local.storage.ss_family, SOCK_STREAM, 0);
	must("SO_REUSEADDR", rsetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	must("rbind", rbind(listener, sockaddr_of(&local), local.length));
	must("rlisten", rlisten(listener, 4));
	ends[0] = rsocket(local.storage.ss_family, SOCK_STREAM, 0);
	must("RDMA_IOMAPSIZE", rsetsockopt(ends[0], SOL_RDMA, RDMA_IOMAPSIZE, &entries, sizeof entries));
	must("rconnect", rconnect(ends[0], sockaddr_of(&local), local.length));
	ends[1] = (int)must("raccept", raccept(listener, NULL, NULL));

	char *memory = malloc(LENGTH);
	pthread_t writer = start_thread(writes, NULL), receiver = start_thread(receives, NULL);
	time_t until = time(NULL) + argument(2, 2);
	while (time(NULL) < until) {
		memset(memory, '-', LENGTH);
		must("riomap", riomap(ends[1], memory, LENGTH, PROT_WRITE, 0, 0));
		usleep((useconds_t)(rounds * 37 % 900));
		if (rounds % 8 == 0) must("rsend", rsend(ends[0], "b", 1, 0));
		must("riounmap", riounmap(ends[1], memory, LENGTH));
		seen += memchr(memory, 'w', LENGTH) != NULL;
		memset(memory, '-', LENGTH);
		usleep((useconds_t)(rounds * 53 % 700));
		late += memchr(memory, 'w', LENGTH) != NULL;
		rounds++;
	}
	must("rsend", rsend(ends[0], "e", 1, 0));
	pthread_join(receiver, NULL);
	over = 1;
	pthread_join(writer, NULL);
	fprintf(stderr, "%ld rounds, %ld of them written to, %ld bytes\n", rounds, seen, (long)written);
	say("rounds: %s", yes_no(rounds > 20));
	say("memory was written: %s", yes_no(seen > 5));
	say("after riounmap: %ld", late);
	return 0;
}

/* fork(2): the child has a copy of all of the parent's memory: also of what stands beside the memory of connections. */
#include "process.h"

#define BLOCKS 6000
#define CONNECTIONS 50

static unsigned char *blocks[3][BLOCKS];
static size_t sizes[3][BLOCKS];

static void fill_heap(int part) {
	for (int i = 0; i < BLOCKS; i++) {
		sizes[part][i] = 16 + (size_t)(i * 37 + part * 11) % 500;
		if (i % 100 == 0) sizes[part][i] = 5000 + (size_t)i;
		blocks[part][i] = malloc(sizes[part][i]);
		fill_pattern(blocks[part][i], sizes[part][i], (uint64_t)i, (unsigned)part);
	}
}

static void look_and_write(void *unused) {
	(void)unused;
	int good = 0;
	for (int part = 0; part < 3; part++)
		for (int i = 0; i < BLOCKS; i++) {
			good += has_pattern(blocks[part][i], sizes[part][i], (uint64_t)i, (unsigned)part);
			memset(blocks[part][i], 0x5a, sizes[part][i]);
			free(blocks[part][i]);
		}
	say("blocks as they were: %d of %d", good, 3 * BLOCKS);
	say("own sockets work: %s", yes_no(own_sockets_work()));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair pairs[CONNECTIONS];
	int listener = new_listener(0, CONNECTIONS);
	fill_heap(0);
	for (int i = 0; i < CONNECTIONS / 2; i++) pairs[i] = connect_pair(listener);
	fill_heap(1);
	for (int i = CONNECTIONS / 2; i < CONNECTIONS; i++) pairs[i] = connect_pair(listener);
	fill_heap(2);
	for (int i = 0; i < CONNECTIONS; i++)
		if (!moves(pairs[i], (unsigned)i)) say("FAILED: connection %d", i);
	for (int i = 0; i < CONNECTIONS; i += 2) close_pair(pairs[i]);
	ended("child", child_of(look_and_write, NULL));
	int good = 0;
	for (int i = 1; i < CONNECTIONS; i += 2) good += moves(pairs[i], (unsigned)i);
	say("connections after it: %d of %d", good, CONNECTIONS / 2);
	good = 0;
	for (int part = 0; part < 3; part++)
		for (int i = 0; i < BLOCKS; i++) good += has_pattern(blocks[part][i], sizes[part][i], (uint64_t)i, (unsigned)part);
	say("the parent's blocks: %d of %d", good, 3 * BLOCKS);
	return 0;
}

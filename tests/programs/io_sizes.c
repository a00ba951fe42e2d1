/* Messages of every kind of length, around the sizes where a library changes its ways (inline data, buffer ends, powers
 * of two), sent whole and read in pieces of another length; ping-pong so that each is alone on the wire. */
#include "common.h"

static const size_t sizes[] = {1,    2,	   3,	 15,	16,	17,	31,	32,	33,	63,	64,	 65,	127,	128,
			       129,  255,  256,	 257,	1000,	1023,	1024,	1025,	4095,	4096,	4097,	 8191,	8192,	8193,
			       16383, 16384, 16385, 32767, 32768, 65535, 65536, 65537, 100000, 131071, 131072, 131073, 200001, 300000};
static const size_t pieces[] = {1, 7, 64, 1000, 4096, 65536, 1 << 20};

struct job {
	int fd;
	size_t size, piece;
};

static void *sender(void *context) {
	struct job *job = context;
	char *buffer = malloc(job->size);
	fill_pattern(buffer, job->size, 0, (unsigned)job->size);
	send_all(job->fd, buffer, job->size);
	free(buffer);
	return NULL;
}

static bool one(int from, int to, size_t size, size_t piece) {
	struct job job = {from, size, piece};
	pthread_t thread = start_thread(sender, &job);
	bool equal = recv_pattern(to, size, piece, (unsigned)size) == size;
	pthread_join(thread, NULL);
	return equal;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	for (size_t p = 0; p < COUNT(pieces); p++) {
		int equal = 0, tried = 0;
		for (size_t s = 0; s < COUNT(sizes); s++) {
			if (sizes[s] / pieces[p] > 2000) continue;
			tried += 2;
			equal += one(both.client, both.server, sizes[s], pieces[p]);
			equal += one(both.server, both.client, sizes[s], pieces[p]);
		}
		say("read in pieces of %zu: %d of %d equal", pieces[p], equal, tried);
	}
	close_pair(both);
	return 0;
}

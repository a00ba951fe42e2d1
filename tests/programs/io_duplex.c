/* Full duplex with two threads an end, one reading and one writing on the same socket all the time, in small buffers: no
 * stall, nothing lost. ARGUMENTS: MiB each way (64), bytes a buffer (4096). */
#include "common.h"

struct job {
	int fd;
	uint64_t total;
	size_t piece;
	unsigned seed;
	bool equal;
};

static void *write_side(void *context) {
	struct job *job = context;
	send_pattern(job->fd, job->total, job->piece, job->seed);
	must("shutdown", shutdown(job->fd, SHUT_WR));
	return NULL;
}

static void *read_side(void *context) {
	struct job *job = context;
	char byte;
	job->equal = recv_pattern(job->fd, job->total, job->piece, job->seed) == job->total && recv(job->fd, &byte, 1, 0) == 0;
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	uint64_t total = (uint64_t)argument(1, 64) << 20;
	size_t piece = (size_t)argument(2, 4096);
	alarm((unsigned)argument(3, WATCHDOG_SECONDS));
	struct pair both = new_pair();
	struct job jobs[] = {
		{both.client, total, piece, 1, false},
		{both.server, total, piece, 1, false},
		{both.server, total, piece, 2, false},
		{both.client, total, piece, 2, false},
	};
	pthread_t threads[COUNT(jobs)];
	for (size_t i = 0; i < COUNT(jobs); i++) threads[i] = start_thread(i % 2 ? read_side : write_side, &jobs[i]);
	for (size_t i = 0; i < COUNT(jobs); i++) pthread_join(threads[i], NULL);
	say("client to server: %s", jobs[1].equal ? "equal" : "differs");
	say("server to client: %s", jobs[3].equal ? "equal" : "differs");
	close_pair(both);
	return 0;
}

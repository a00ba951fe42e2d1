/* A long echo: one thread sends, one echoes, one receives and compares; then the same the other way round.
 * ARGUMENT: MiB (64). */
#include "common.h"

struct job {
	int fd;
	uint64_t total;
};

static void *echo(void *context) {
	struct job *job = context;
	char *buffer = malloc(1 << 18);
	for (uint64_t done = 0; done < job->total;) {
		ssize_t got = recv(job->fd, buffer, 1 << 18, 0);
		must("recv", got);
		if (!got) break;
		send_all(job->fd, buffer, (size_t)got);
		done += (uint64_t)got;
	}
	free(buffer);
	return NULL;
}

static void *produce(void *context) {
	struct job *job = context;
	send_pattern(job->fd, job->total, 100000, 5);
	return NULL;
}

static void run(const char *what, int near, int far, uint64_t total) {
	struct job out = {near, total}, back = {far, total};
	pthread_t echoing = start_thread(echo, &back), producing = start_thread(produce, &out);
	say("%s: %s", what, recv_pattern(near, total, 1 << 18, 5) == total ? "equal" : "differs");
	pthread_join(producing, NULL);
	pthread_join(echoing, NULL);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	uint64_t total = (uint64_t)argument(1, 64) << 20;
	struct pair both = new_pair();
	run("from the client", both.client, both.server, total);
	run("from the server", both.server, both.client, total);
	close_pair(both);
	return 0;
}

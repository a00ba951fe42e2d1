/* How long a connect takes that is refused, or that a peer takes which does not speak RDMA: nobody should wait longer than
 * on kernel TCP (connect(2)). Cases B10, B57.
 *
 * fault_connect refused|taken|either ADDRESS PORT ROUNDS: prints "first MICROSECONDS" and "median MICROSECONDS" */
#include "common.h"

int main(int argc, char **argv) {
	if (argc < 5) {
		fprintf(stderr, "fault_connect refused|taken|either ADDRESS PORT ROUNDS\n");
		return 2;
	}
	bool refused = !strcmp(argv[1], "refused"), either = !strcmp(argv[1], "either");
	begin(argc - 1, argv + 1);
	struct address where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 0));
	int rounds = (int)argument(2, 1);
	int64_t *times = calloc((size_t)rounds, sizeof *times), first = 0;
	for (int i = 0; i < rounds; i++) {
		int fd = new_socket(0);
		int64_t start = now_us();
		int result = connect_to(fd, where);
		times[i] = now_us() - start;
		bool was_refused = result < 0 && errno == ECONNREFUSED;
		/* A listener that dies with the connection in its queue: which of the two depends on the moment, plain too. */
		bool was_ended = was_refused || (result < 0 && errno == ECONNRESET);
		if (refused ? !was_refused : result < 0 && !(either && was_ended)) die("connect");
		close(fd);
	}
	first = times[0];
	qsort(times, (size_t)rounds, sizeof *times, ascending);
	say("first %lld", (long long)first);
	say("median %lld", (long long)times[rounds / 2]);
	free(times);
	return 0;
}

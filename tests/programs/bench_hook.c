/* What a hook costs a call on a kernel descriptor: reads 1 byte of /dev/zero, again and again.
 *
 * bench_hook LIBRARY [ROUNDS [RUNS]]   runs itself without and with LD_PRELOAD=LIBRARY, RUNS times in turn, and prints the
 *                                      smallest time of a call of each, and the difference, in nanoseconds
 * bench_hook -                         one such run: prints the smallest mean of its rounds
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 20000 };

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e9 + time.tv_nsec;
}

static int measure(int rounds)
{
	char byte;
	double least = 1e18;
	int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 1;
	for (int round = 0; round < rounds; round++) {
		double start = now();
		for (int call = 0; call < CALLS; call++)
			if (read(fd, &byte, 1) != 1)
				return 1;
		double mean = (now() - start) / CALLS;
		if (mean < least)
			least = mean;
	}
	printf("%.3f\n", least);
	return 0;
}

/* One run in a new process: its figure, or a negative number. */
static double run(const char *self, const char *library, const char *rounds)
{
	char command[8192];
	double figure = -1;
	snprintf(command, sizeof command, "%s%s '%s' - %s", library ? "LD_PRELOAD=" : "", library ? library : "", self, rounds);
	FILE *output = popen(command, "r");
	if (!output)
		return -1;
	if (fscanf(output, "%lf", &figure) != 1)
		figure = -1;
	pclose(output);
	return figure;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: bench_hook LIBRARY [ROUNDS [RUNS]]\n");
		return 2;
	}
	const char *rounds = argc > 2 ? argv[2] : "10";
	if (!strcmp(argv[1], "-"))
		return measure(atoi(rounds));
	int runs = argc > 3 ? atoi(argv[3]) : 60;
	double least[2] = { 1e18, 1e18 };
	for (int turn = 0; turn < 2 * runs; turn++) {
		double figure = run(argv[0], turn % 2 ? argv[1] : NULL, rounds);
		if (figure < 0)
			return 1;
		if (figure < least[turn % 2])
			least[turn % 2] = figure;
	}
	printf("read of /dev/zero, 1 byte: without %.2f ns, preloaded %.2f ns, difference %+.2f ns\n", least[0], least[1],
	       least[1] - least[0]);
	return 0;
}

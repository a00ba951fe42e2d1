/* fork while other threads make the very first calls of the process, which read the settings, start the service and so on: whatever one of
 * them is in the middle of, the child's sockets work. Each round is a process of its own, begun by exec. */
#include "process.h"

#define ROUNDS 60

static pthread_barrier_t line;

static void *first(void *unused) {
	(void)unused;
	pthread_barrier_wait(&line);
	struct pair both = new_pair();
	bool works = moves(both, 1);
	close_pair(both);
	return works ? &line : NULL;
}

static int one_round(int wait_us) {
	pthread_t threads[2];
	pthread_barrier_init(&line, NULL, 3);
	for (int i = 0; i < 2; i++) threads[i] = start_thread(first, NULL);
	pthread_barrier_wait(&line);
	int64_t until = now_us() + wait_us;
	while (now_us() < until) {}
	pid_t child = (pid_t)must("fork", fork());
	if (child == 0) {
		signal(SIGALRM, SIG_DFL);
		alarm(20);
		_exit(own_sockets_work() ? 0 : 1);
	}
	int status = 0;
	must("waitpid", waitpid(child, &status, 0));
	bool all = WIFEXITED(status) && WEXITSTATUS(status) == 0;
	for (int i = 0; i < 2; i++) {
		void *works = NULL;
		pthread_join(threads[i], &works);
		all = all && works;
	}
	return all ? 0 : 1;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 2) return one_round((int)argument(1, 0));
	int good = 0;
	for (int round = 0; round < ROUNDS; round++) {
		char wait_us[16];
		snprintf(wait_us, sizeof wait_us, "%d", 25 * round);
		pid_t child = (pid_t)must("fork", fork());
		if (child == 0) {
			execl("/proc/self/exe", argv[0], argc > 1 ? argv[1] : "127.0.0.1", wait_us, (char *)NULL);
			_exit(99);
		}
		int status = 0;
		must("waitpid", waitpid(child, &status, 0));
		good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
	}
	say("%d of %d", good, ROUNDS);
	return 0;
}

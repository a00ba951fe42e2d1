/* A program that starts itself anew many times, with a listener that it keeps and a connection in use each time: nothing of the library's may be
 * left each time. execve(2): "By default, file descriptors remain open across an execve(). File descriptors that are marked close-on-exec are
 * closed"; "Memory mappings are not preserved".
 *
 * exec_many ADDRESS [TIMES]; as "exec_many ADDRESS TIMES LISTENER [DESCRIPTORS,MAPPINGS]" it goes on. */
#include "common.h"

enum { TIMES = 500, BYTES = 3000 };

static int count_mappings(void) {
	FILE *file = fopen("/proc/self/maps", "r");
	if (!file) die("/proc/self/maps");
	int lines = 0;
	for (int c; (c = getc(file)) != EOF;) lines += c == '\n';
	fclose(file);
	return lines;
}

static void *client(void *context) {
	int fd = new_socket(SOCK_CLOEXEC);
	must("connect", connect_to(fd, name_of(*(int *)context)));
	send_pattern(fd, BYTES, 1000, 1);
	if (recv_pattern(fd, BYTES, 1000, 2) != BYTES) die("the answer");
	return (void *)(intptr_t)fd;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	bool first = argc < 4, second = argc == 4;
	long left = argument(1, TIMES);
	int listener = first ? new_listener(0, 8) : (int)argument(2, -1);
	char *known = first || second ? NULL : argv[4];

	/* As it was started: what a program has of its predecessor. (How many mappings its libraries take may change with their place.) */
	int descriptors = open_descriptors(), mappings = count_mappings();
	if (known) {
		int before, most;
		if (sscanf(known, "%d,%d", &before, &most) != 2) die("arguments");
		if (descriptors != before) say("FAILED: %d descriptors, before it were %d", descriptors, before);
		if (mappings > most + 3 || mappings < most - 3) say("FAILED: %d mappings, before it were %d", mappings, most);
		if (descriptors != before || mappings > most + 3 || mappings < most - 3) return 1;
	}
	/* The first look makes the listener one over the fabric. */
	set_nonblocking(listener, true);
	if (accept(listener, NULL, NULL) >= 0 || errno != EAGAIN) die("accept in vain");
	set_nonblocking(listener, false);
	pthread_t thread = start_thread(client, &listener);
	int fd = (int)must("accept4", accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	if (recv_pattern(fd, BYTES, 1000, 1) != BYTES) die("the question");
	send_pattern(fd, BYTES, 1000, 2);
	void *other;
	pthread_join(thread, &other);
	if (known && left <= 0) return say("the last one has what the first one had"), 0;
	/* Both are in use, and stay open. */
	char numbers[3][32];
	snprintf(numbers[0], sizeof numbers[0], "%ld", left - 1);
	snprintf(numbers[1], sizeof numbers[1], "%d", listener);
	if (known)
		snprintf(numbers[2], sizeof numbers[2], "%s", known);
	else
		snprintf(numbers[2], sizeof numbers[2], "%d,%d", descriptors, mappings);
	/* The first one has descriptors of its own by now. */
	char *arguments[] = {argv[0], argc > 1 ? argv[1] : "127.0.0.1", numbers[0], numbers[1], first ? NULL : numbers[2], NULL};
	execv("/proc/self/exe", arguments);
	die("execv");
}

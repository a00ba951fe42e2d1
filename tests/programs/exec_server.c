/* A listener that comes from elsewhere, and the programs around it.
 *
 * exec_server run ADDRESS PORT COMMAND...: listens and becomes COMMAND, which has the listener as number 3, and LISTEN_FDS, as systemd has it.
 * exec_server plain ADDRESS PORT COMMAND...: the same without LD_PRELOAD.
 * exec_server hold ADDRESS PORT WORKERS CLIENTS: listens and starts so many "exec_server serve NUMBER CLIENTS", by posix_spawn; itself it only
 *   holds the listener.
 * exec_server serve NUMBER CLIENTS: answers so many clients, and then ends. 0: goes on.
 * exec_server ask ADDRESS PORT CLIENTS: is so many clients, one after the other. */
#include "common.h"
#include <spawn.h>
#include <sys/wait.h>

enum { BYTES = 30000, FIRST = 3 };

extern char **environ;

static struct address at(const char *address, const char *port) {
	struct address made = parse_address(address);
	((struct sockaddr_in *)&made.storage)->sin_port = htons((uint16_t)atoi(port)); /* in the same place for IPv6 */
	return made;
}

static void answer(int listener) {
	int fd = (int)must("accept", accept4(listener, NULL, NULL, SOCK_CLOEXEC));
	if (recv_pattern(fd, BYTES, 4000, 5) != BYTES) die("what a client has sent");
	send_pattern(fd, BYTES, 2000, 6);
	/* The client closes first. */
	char byte;
	must("the end", recv(fd, &byte, 1, 0));
	close(fd);
}

static int serve(const char *number, const char *count) {
	int listener = atoi(number), clients = atoi(count);
	const char *passed = getenv("LISTEN_FDS");
	if (passed) say("LISTEN_FDS %s", passed);
	/* Who connects from now on finds the listener of the fabric. */
	struct pollfd one = {.fd = listener, .events = POLLIN};
	must("poll", poll(&one, 1, 0));
	say("ready");
	for (int i = 0; !clients || i < clients; i++) answer(listener);
	say("answered %d", clients);
	return 0;
}

static int ask(struct address server, int count) {
	int answered = 0;
	for (int i = 0; i < count; i++) {
		int fd = (int)must("socket", socket(server.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
		must("connect", connect_to(fd, server));
		send_pattern(fd, BYTES, 3000, 5);
		answered += recv_pattern(fd, BYTES, 4000, 6) == BYTES;
		close(fd);
	}
	say("%d of %d answered", answered, count);
	return answered != count;
}

static int hold(char *self, int listener, int workers, char *clients) {
	char number[16], *arguments[] = {self, "serve", number, clients, NULL};
	snprintf(number, sizeof number, "%d", listener);
	int failed = 0, status;
	pid_t child;
	for (int i = 0; i < workers; i++) {
		errno = posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ);
		if (errno) die("posix_spawn");
	}
	for (int i = 0; i < workers; i++) {
		must("wait", wait(&status));
		say("a worker has ended");
		failed += status != 0;
	}
	return failed;
}

static void run(int listener, char **command) {
	char process[16];
	snprintf(process, sizeof process, "%d", (int)getpid());
	setenv("LISTEN_FDS", "1", 1);
	setenv("LISTEN_PID", process, 1);
	if (listener != FIRST) {
		must("dup2", dup2(listener, FIRST));
		close(listener);
	}
	execvp(command[0], command);
	die(command[0]);
}

int main(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(WATCHDOG_SECONDS);
	if (argc == 4 && !strcmp(argv[1], "serve")) return serve(argv[2], argv[3]);
	if (argc < 5) return 2;
	struct address place = at(argv[2], argv[3]);
	if (!strcmp(argv[1], "ask")) return ask(place, atoi(argv[4]));
	int listener = (int)must("socket", socket(place.storage.ss_family, SOCK_STREAM, 0)), yes = 1;
	must("SO_REUSEADDR", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
	must("bind", bind_to(listener, place));
	must("listen", listen(listener, 64));
	if (!strcmp(argv[1], "hold") && argc == 6) return hold(argv[0], listener, atoi(argv[4]), argv[5]);
	if (!strcmp(argv[1], "plain")) unsetenv("LD_PRELOAD");
	run(listener, argv + 4);
}

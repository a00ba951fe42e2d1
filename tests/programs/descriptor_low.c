/* A program that starts with 0, 1 and 2 closed: its first sockets get these numbers (socket(2): "the lowest-numbered file descriptor not
 * currently open"). One that takes 3 to 10 for its own purposes by dup2(2), and closes 3 to 1023. Case B32. */
#include "common.h"

#define KEPT 900 /* where the output goes meanwhile */

static char lines[4000];

static void note(const char *what, long result) {
	int error = errno;
	size_t used = strlen(lines);
	snprintf(lines + used, sizeof lines - used, "%s: %ld %s\n", what, result, result < 0 ? strerrorname_np(error) : "");
}

static void talk(struct pair both) {
	char text[8];
	note("send", send(both.client, "there", 5, 0));
	note("recv", (long)recv_all(both.server, text, 5));
	note("write", write(both.server, "back", 4));
	wait_for(both.client, POLLIN);
	note("read", read(both.client, text, 4));
}

static int starts_low(void) {
	int listener = socket(local.storage.ss_family, SOCK_STREAM, 0);
	note("socket", listener);
	note("bind", bind_to(listener, local));
	note("listen", listen(listener, 4));
	struct pair both = {.client = socket(local.storage.ss_family, SOCK_STREAM, 0)};
	note("socket", both.client);
	note("connect", connect_to(both.client, name_of(listener)));
	both.server = accept(listener, NULL, NULL);
	note("accept", both.server);
	talk(both);
	note("pipe", pipe((int[2]){0, 0}));
	note("dup", dup(0));
	for (int fd = 3; fd <= 10; fd++) note("dup2", dup2(both.client, fd));
	note("by a copy", send(10, "x", 1, 0));
	for (int fd = 3; fd < KEPT; fd++) close(fd);
	for (int fd = KEPT + 1; fd < 1024; fd++) close(fd);
	note("recv", recv(both.server, lines + sizeof lines - 8, 1, 0));
	talk(both);
	struct pair second = {.client = socket(local.storage.ss_family, SOCK_STREAM, 0)};
	note("socket", second.client);
	note("connect", connect_to(second.client, name_of(listener)));
	second.server = accept(listener, NULL, NULL);
	note("accept", second.server);
	talk(second);
	note("close", close(both.client));
	note("the end", recv(both.server, lines + sizeof lines - 8, 1, 0));
	note("socket", socket(local.storage.ss_family, SOCK_STREAM, 0));
	dup2(KEPT, 1);
	return write(1, lines, strlen(lines)) == (ssize_t)strlen(lines) ? 0 : 1;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argument(1, 0)) return starts_low();
	must("dup2", dup2(1, KEPT));
	for (int fd = 3; fd < KEPT; fd++) close(fd);
	for (int fd = 0; fd < 3; fd++) close(fd);
	execl("/proc/self/exe", argv[0], argc > 1 ? argv[1] : "127.0.0.1", "1", NULL);
	return 1;
}

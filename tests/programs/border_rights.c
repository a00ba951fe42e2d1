/* A connection goes on when its process gives away rights: chroot(2), setgroups(2), setgid(2), setuid(2). For root. Open descriptors are
 * not affected by chroot(2): "This call does not close open file descriptors".
 *
 * border_rights listen|connect ADDRESS PORT FOLDER UID: both ends move data, sleep for the other, become UID in FOLDER (the one end while
 * the other waits for its data), and move data again; then the connecting end makes a new connection, which has to work as well. */
#include "common.h"
#include <grp.h>

enum { BYTES = 3000000 };

static void give_away(const char *folder, uid_t user) {
	must("chroot", chroot(folder));
	must("chdir", chdir("/"));
	must("setgroups", setgroups(0, NULL));
	must("setgid", setgid((gid_t)user));
	must("setuid", setuid(user));
	say("user %s, root %s", yes_no(getuid() == user && geteuid() == user), yes_no(access("/proc", F_OK) < 0));
}

static void *sends(void *context) {
	send_pattern(*(int *)context, BYTES, 30000, 5);
	return NULL;
}

/* Both ways at the same time, so that both ends sleep with full and with empty buffers. */
static void both_ways(const char *what, int fd) {
	pthread_t thread = start_thread(sends, &fd);
	say("%s: received %s", what, recv_pattern(fd, BYTES, 30000, 5) == BYTES ? "whole" : "cut short");
	pthread_join(thread, NULL);
}

/* The other end is there, and has slept. */
static void meet(int fd, bool first) {
	char byte = 'm';
	if (first) sleep_ms(100);
	if (first) send_all(fd, &byte, 1);
	if (recv_all(fd, &byte, 1) != 1) die("meet");
	if (!first) sleep_ms(100);
	if (!first) send_all(fd, &byte, 1);
}

int main(int argc, char **argv) {
	if (argc < 6) {
		fprintf(stderr, "border_rights listen|connect ADDRESS PORT FOLDER UID\n");
		return 2;
	}
	bool listens = !strcmp(argv[1], "listen");
	begin(argc - 1, argv + 1);
	struct address where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 0));
	int listener = -1, fd, on = 1;
	if (listens) {
		listener = new_socket(0);
		must("SO_REUSEADDR", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
		must("bind", bind_to(listener, where));
		must("listen", listen(listener, 4));
		fd = (int)must("accept", accept(listener, NULL, NULL));
	} else {
		fd = new_socket(0);
		must("connect", connect_to(fd, where));
	}
	both_ways("before", fd);
	if (listens) give_away(argv[4], (uid_t)argument(3, 65534));
	meet(fd, listens);
	both_ways("one of them", fd);
	if (!listens) give_away(argv[4], (uid_t)argument(3, 65534));
	meet(fd, !listens);
	both_ways("both", fd);
	int other;
	if (listens) {
		other = (int)must("accept", accept(listener, NULL, NULL));
	} else {
		other = new_socket(0);
		must("connect", connect_to(other, where));
	}
	both_ways("a new one", other);
	must("shutdown", shutdown(fd, SHUT_WR));
	char byte;
	say("at the end: %s", recv_all(fd, &byte, 1) == 0 ? "end of file" : "data");
	return 0;
}

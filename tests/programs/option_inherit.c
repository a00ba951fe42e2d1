/* accept(2), socket(7): an accepted socket takes over the options of the listener (but not its status flags). */
#include "common.h"

static void show(const char *what, int fd) {
	static const struct {
		const char *name;
		int level, option;
	} all[] = {{"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE}, {"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR},
		   {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE}, {"TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY},
		   {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE}, {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL},
		   {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT},	{"SO_RCVBUF", SOL_SOCKET, SO_RCVBUF},
		   {"SO_SNDBUF", SOL_SOCKET, SO_SNDBUF}};
	for (size_t i = 0; i < COUNT(all); i++) {
		int value = -1;
		socklen_t length = sizeof value;
		must(all[i].name, getsockopt(fd, all[i].level, all[i].option, &value, &length));
		say("%s: %s %d", what, all[i].name, value);
	}
	struct linger linger = {0, 0};
	socklen_t length = sizeof linger;
	must("SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
	say("%s: SO_LINGER %d %d", what, linger.l_onoff, linger.l_linger);
	struct timeval time = {0};
	length = sizeof time;
	must("SO_RCVTIMEO", getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, &length));
	say("%s: SO_RCVTIMEO %ld s", what, (long)time.tv_sec);
}

static void set(int fd, int level, int option, int value) {
	must("setsockopt", setsockopt(fd, level, option, &value, sizeof value));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_socket(0);
	set(listener, SOL_SOCKET, SO_REUSEADDR, 1);
	set(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(listener, SOL_SOCKET, SO_OOBINLINE, 1);
	set(listener, SOL_SOCKET, SO_RCVBUF, 60000);
	set(listener, SOL_SOCKET, SO_SNDBUF, 70000);
	set(listener, IPPROTO_TCP, TCP_NODELAY, 1);
	set(listener, IPPROTO_TCP, TCP_KEEPIDLE, 77);
	set(listener, IPPROTO_TCP, TCP_KEEPINTVL, 11);
	set(listener, IPPROTO_TCP, TCP_KEEPCNT, 4);
	struct linger linger = {1, 3};
	struct timeval time = {.tv_sec = 9};
	must("SO_LINGER", setsockopt(listener, SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 4));
	show("listener", listener);
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(listener)));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	show("accepted", server);
	return 0;
}

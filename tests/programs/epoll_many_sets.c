/* One socket in several sets, level, edge and exclusive: each has its own view. */
#include "epoll.h"

static int sets[4];

static void look(const char *what) {
	static const char *kinds[] = {"level", "edge", "one shot", "exclusive"};
	for (size_t i = 0; i < COUNT(sets); i++) {
		char text[64];
		snprintf(text, sizeof text, "%s, %s", what, kinds[i]);
		show(text, sets[i], 50);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	static const uint32_t flags[] = {0, EPOLLET, EPOLLONESHOT, EPOLLEXCLUSIVE};
	for (size_t i = 0; i < COUNT(sets); i++) {
		sets[i] = new_set();
		add(sets[i], both.server, EPOLLIN | flags[i], 's');
	}
	look("nothing");
	send_all(both.client, "a", 1);
	wait_bytes(both.server, 1);
	look("data");
	look("again");
	char text[4];
	recv_all(both.server, text, 1);
	look("read");
	send_all(both.client, "b", 1);
	wait_bytes(both.server, 1);
	look("more");
	drop(sets[0], both.server);
	close(sets[1]);
	sets[1] = new_set();
	look("one left, one closed");
	close_pair(both);
	look("closed");
	return 0;
}

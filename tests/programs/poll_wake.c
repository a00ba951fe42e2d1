/* What wakes a thread that is already asleep in poll(-1): data, the peer's shutdown and close, a shutdown of the same
 * socket by another thread, room to write, a connection, a refusal. */
#include "common.h"

struct action {
	const char *name;
	void (*act)(struct pair);
};

static struct pair both;
static struct address listening;
static void (*current)(struct pair);

static void *act_later(void *context) {
	(void)context;
	sleep_ms(100);
	current(both);
	return NULL;
}

static void sleep_until(const char *what, int fd, short asked, void (*act)(struct pair)) {
	current = act;
	pthread_t thread = start_thread(act_later, NULL);
	struct pollfd one = {.fd = fd, .events = asked};
	int64_t start = now_us();
	report(what, poll(&one, 1, -1));
	report_not_early(what, start, 95);
	pthread_join(thread, NULL);
	/* several events of one cause may come one after the other */
	say("%s: includes what was asked: %s", what, yes_no(one.revents & (asked | POLLHUP | POLLERR)));
}

static void peer_sends(struct pair p) { send_all(p.client, "x", 1); }
static void peer_shuts(struct pair p) { shutdown(p.client, SHUT_WR); }
static void peer_closes(struct pair p) { close(p.client); }
static void own_shut_rd(struct pair p) { shutdown(p.server, SHUT_RD); }
static void own_shut_both(struct pair p) { shutdown(p.server, SHUT_RDWR); }
static void connects(struct pair p) { must("connect", connect_to(p.client, listening)); }
static void drain(struct pair p) {
	static char buffer[1 << 16];
	while (recv(p.client, buffer, sizeof buffer, MSG_DONTWAIT) > 0 || events_now(p.server, POLLOUT) == 0) sleep_ms(1);
}

static void fill(int fd) {
	static char buffer[1 << 16];
	for (int quiet = 0; quiet < 5; quiet++) {
		while (send(fd, buffer, sizeof buffer, MSG_DONTWAIT) > 0) quiet = 0;
		sleep_ms(10);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	both = new_pair();
	sleep_until("data", both.server, POLLIN, peer_sends);
	char byte;
	report("recv", recv(both.server, &byte, 1, 0));
	fill(both.server);
	sleep_until("room to write", both.server, POLLOUT, drain);
	sleep_until("peer's SHUT_WR", both.server, POLLIN, peer_shuts);
	close_pair(both);
	both = new_pair();
	sleep_until("peer's SHUT_WR, RDHUP asked", both.server, POLLRDHUP, peer_shuts);
	close_pair(both);
	both = new_pair();
	sleep_until("peer's close", both.server, POLLIN, peer_closes);
	close(both.server);
	both = new_pair();
	sleep_until("own SHUT_RD", both.server, POLLIN, own_shut_rd);
	close_pair(both);
	both = new_pair();
	sleep_until("own SHUT_RDWR", both.server, 0, own_shut_both);
	close_pair(both);
	int listener = new_listener(0, 4);
	listening = name_of(listener);
	both = (struct pair){new_socket(0), listener};
	sleep_until("a connection", listener, POLLIN, connects);
	return 0;
}

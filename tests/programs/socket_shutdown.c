/* shutdown(2) of either direction in every order: what each end may still do, and what poll says of it. Case B38.
 * Data queued before SHUT_WR arrives before the end of file; sending after it is EPIPE; receiving after SHUT_RD is 0. */
#include "common.h"

static void try_all(const char *what, int fd) {
	char byte = 'y';
	ssize_t got = recv(fd, &byte, 1, MSG_DONTWAIT);
	say("%s: recv %zd %s", what, got, got < 0 ? strerrorname_np(errno) : "");
	ssize_t sent = send(fd, "z", 1, MSG_NOSIGNAL);
	say("%s: send %zd %s", what, sent, sent < 0 ? strerrorname_np(errno) : "");
}

static const char *how_name(int how) { return how == SHUT_RD ? "RD" : how == SHUT_WR ? "WR" : "RDWR"; }

/* Two shutdowns of one end after each other. */
static void two_of_one(int first, int second) {
	struct pair both = new_pair();
	say("-- one end: %s then %s", how_name(first), how_name(second));
	report("first", shutdown(both.client, first));
	say("client: %s", event_names(events_now(both.client, ALL_EVENTS)));
	report("second", shutdown(both.client, second));
	bool writes_shut = first != SHUT_RD || second != SHUT_RD;
	if (writes_shut) wait_for(both.server, POLLRDHUP);
	say("client: %s", event_names(events_now(both.client, ALL_EVENTS)));
	say("server: %s", event_names(events_now(both.server, ALL_EVENTS)));
	try_all("client", both.client);
	if (writes_shut) {
		char byte;
		report("server recv", recv(both.server, &byte, 1, 0));
	}
	close_pair(both);
}

/* One shutdown at each end. */
static void one_of_each(int client, int server) {
	struct pair both = new_pair();
	say("-- client %s, server %s", how_name(client), how_name(server));
	report("send before", send(both.client, "a", 1, 0));
	report("send before", send(both.server, "b", 1, 0));
	wait_bytes(both.client, 1);
	wait_bytes(both.server, 1);
	report("client", shutdown(both.client, client));
	if (client != SHUT_RD) wait_for(both.server, POLLRDHUP);
	report("server", shutdown(both.server, server));
	if (server != SHUT_RD) wait_for(both.client, POLLRDHUP);
	short now = wait_for(both.client, 0);
	say("client: %s", event_names(now));
	say("server: %s", event_names(events_now(both.server, ALL_EVENTS)));
	char byte = 0;
	report("client recv", recv(both.client, &byte, 1, MSG_DONTWAIT));
	report("server recv", recv(both.server, &byte, 1, MSG_DONTWAIT));
	if (client != SHUT_RD || server != SHUT_RD) {
		if (client != SHUT_RD) report("server recv again", recv(both.server, &byte, 1, 0));
		if (server != SHUT_RD) report("client recv again", recv(both.client, &byte, 1, 0));
	}
	close_pair(both);
}

/* A thread that waits in recv is woken by a shutdown of the same socket in another thread. */
static void *recv_one(void *context) {
	char byte;
	return (void *)(intptr_t)recv(*(int *)context, &byte, 1, 0);
}

static void wakes_reader(int how) {
	struct pair both = new_pair();
	pthread_t reader = start_thread(recv_one, &both.client);
	sleep_ms(100);
	report("shutdown under a reader", shutdown(both.client, how));
	void *result;
	pthread_join(reader, &result);
	say("reader, %s: %ld", how_name(how), (long)(intptr_t)result);
	close_pair(both);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	static const int hows[] = {SHUT_RD, SHUT_WR, SHUT_RDWR};
	for (size_t first = 0; first < COUNT(hows); first++)
		for (size_t second = 0; second < COUNT(hows); second++) two_of_one(hows[first], hows[second]);
	for (size_t client = 0; client < COUNT(hows); client++)
		for (size_t server = 0; server < COUNT(hows); server++)
			if (hows[client] != SHUT_RDWR || hows[server] != SHUT_RDWR) one_of_each(hows[client], hows[server]);
	wakes_reader(SHUT_RD);
	wakes_reader(SHUT_RDWR);
	return 0;
}

/* A process whose address space ends (getrlimit(2), RLIMIT_AS): each connection that it makes carries what it is given, those that were
 * made near the limit as well. More messages than a peer takes unread, and then all the others that fit. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/resource.h>

#define CONNECTIONS 60
#define SMALL 400

static char bytes[1 << 17];

static long address_space(void) {
	long pages = 0;
	FILE *file = fopen("/proc/self/statm", "r");
	if (!file || fscanf(file, "%ld", &pages) != 1) die("statm");
	fclose(file);
	return pages * sysconf(_SC_PAGESIZE);
}

static void carry(struct pair both) {
	long sent = 0, received = 0, some;
	set_nonblocking(both.client, true);
	for (int i = 0; i < SMALL; i++)
		if ((some = send(both.client, bytes, 1, 0)) > 0) sent += some;
	while ((some = send(both.client, bytes, sizeof bytes, 0)) > 0) sent += some;
	if (errno != EAGAIN) die("send");
	must("shutdown", shutdown(both.client, SHUT_WR));
	while ((some = must("recv", recv(both.server, bytes, sizeof bytes, 0))) > 0) received += some;
	if (received != sent) say("%ld bytes of %ld", received, sent);
}

/* malloc(3) gives NULL for any size from now on; the list of what was allocated. */
static void **exhaust(void) {
	void **list = NULL, **block;
	for (size_t size = 1 << 20; size >= 16; size /= 2)
		for (; (block = malloc(size)); list = block) *block = list;
	return list;
}

static void free_all(void **list) {
	while (list) {
		void **next = *list;
		free(list);
		list = next;
	}
}

/* A heap that is full while there are connections, and when new ones are asked for; and afterwards not any more. */
static void without_heap(int listener) {
	struct pair before = connect_pair(listener);
	void **list = exhaust();
	struct pair pairs[CONNECTIONS];
	for (int i = 0; i < CONNECTIONS; i++) pairs[i] = connect_pair(listener);
	carry(before);
	for (int i = 0; i < CONNECTIONS; i++) {
		carry(pairs[i]);
		close(pairs[i].client);
		close(pairs[i].server);
	}
	struct pollfd entry = {listener, POLLIN, 0};
	say("poll %d", must("poll", poll(&entry, 1, 0)));
	int sets[] = {epoll_create1(0), new_socket(0), new_listener(0, 8)};
	must("epoll_ctl", epoll_ctl(sets[0], EPOLL_CTL_ADD, listener, &(struct epoll_event){.events = EPOLLIN}));
	for (int i = 0; i < 3; i++) close(sets[i]);
	free_all(list);
	struct pair after = connect_pair(listener);
	carry(after);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8);
	rlim_t most = address_space() + (argument(1, 100000) << 10);
	must("setrlimit", setrlimit(RLIMIT_AS, &(struct rlimit){most, most}));
	if (argument(2, 0)) {
		without_heap(listener);
		return 0;
	}
	static struct pair pairs[CONNECTIONS];
	for (int i = 0; i < CONNECTIONS; i++) pairs[i] = connect_pair(listener);
	for (int i = 0; i < CONNECTIONS; i++) carry(pairs[i]);
	say("made %d", CONNECTIONS);
	for (int i = 0; i < CONNECTIONS; i++) {
		close(pairs[i].client);
		close(pairs[i].server);
	}
	return 0;
}

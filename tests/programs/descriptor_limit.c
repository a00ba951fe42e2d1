/* A process that has used up its descriptors (getrlimit(2), RLIMIT_NOFILE) waits on the sockets that it has: in recv, poll and select,
 * in several threads. poll takes as many entries as the limit says, most of them -1 (poll(2)). */
#include "common.h"
#include <sys/resource.h>

#define LIMIT 200
#define THREADS 4

static struct pair pairs[THREADS];

static void *wait_for_data(void *context) {
	long number = (long)context;
	int fd = pairs[number].server;
	struct pollfd one = {.fd = fd, .events = POLLIN};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	if (number == 1) must("poll", poll(&one, 1, -1));
	if (number == 2) must("select", select(fd + 1, &set, NULL, NULL, NULL));
	char byte;
	must("recv", recv(fd, &byte, 1, 0));
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct rlimit limit = {.rlim_cur = LIMIT, .rlim_max = LIMIT};
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	int listener = new_listener(0, 8);
	for (int i = 0; i < THREADS; i++) pairs[i] = connect_pair(listener);

	struct pollfd many[LIMIT];
	for (int i = 0; i < LIMIT; i++) many[i] = (struct pollfd){.fd = -1, .events = POLLIN};
	many[LIMIT / 2].fd = pairs[0].server;
	report("poll as many as the limit", poll(many, LIMIT, 20));
	send_all(pairs[0].client, "x", 1);
	report("poll again", poll(many, LIMIT, ARRIVAL_MS));
	char byte;
	report("recv", recv(pairs[0].server, &byte, 1, 0));

	int last = 1;
	for (int made; (made = dup(1)) >= 0;) last = made;
	report_descriptor("used up", dup(1));
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++) threads[i] = start_thread(wait_for_data, (void *)i);
	sleep_ms(100);
	for (int i = 0; i < THREADS; i++) send_all(pairs[i].client, "x", 1);
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
	struct timeval soon = {.tv_usec = 30 * 1000};
	must("SO_RCVTIMEO", setsockopt(pairs[0].server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	report("recv until the time-out", recv(pairs[0].server, &byte, 1, 0));
	struct pollfd both[2] = {{.fd = listener, .events = POLLIN}, {.fd = pairs[0].server, .events = POLLIN}};
	report("poll until the time-out", poll(both, 2, 30));
	report_descriptor("socket", socket(local.storage.ss_family, SOCK_STREAM, 0));
	close(last);
	return 0;
}

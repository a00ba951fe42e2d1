/* Traffic of the protocol itself is no event: while the peer only reads what is sent to it, a poll for input of the sender
 * stays asleep for its whole time-out; an idle wait of a full connection too. Case B02. */
#include "common.h"

static size_t queued;

static void *read_slowly(void *context) {
	int fd = *(int *)context;
	char buffer[8192];
	size_t taken = 0;
	for (int i = 0; i < 60 && taken < queued; i++) {
		ssize_t got = recv(fd, buffer, sizeof buffer, 0);
		if (got <= 0) break;
		taken += (size_t)got;
		sleep_ms(10);
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	static char block[1 << 16];
	for (int quiet = 0; quiet < 5; quiet++) {
		for (ssize_t sent; (sent = send(both.client, block, sizeof block, MSG_DONTWAIT)) > 0; quiet = 0) queued += (size_t)sent;
		sleep_ms(10);
	}
	pthread_t reader = start_thread(read_slowly, &both.server);
	struct pollfd one = {.fd = both.client, .events = POLLIN};
	int64_t start = now_us();
	report("poll for input", poll(&one, 1, 400));
	report_not_early("poll for input", start, 400);
	fd_set reads;
	FD_ZERO(&reads);
	FD_SET(both.client, &reads);
	struct timeval limit = {.tv_usec = 150 * 1000};
	start = now_us();
	report("select for input", select(both.client + 1, &reads, NULL, NULL, &limit));
	report_not_early("select for input", start, 150);
	pthread_join(reader, NULL);
	return 0;
}

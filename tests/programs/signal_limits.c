/* signal(7): "if a timeout has been set on the socket", reads, writes, accept and connect are never restarted: SO_RCVTIMEO for those that
 * read, SO_SNDTIMEO for those that write; the other one does not count. Case B39. */
#include "signal_calls.h"

static void limit(int fd, int option, int seconds) {
	struct timeval time = {.tv_sec = seconds};
	must("limit", setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	handle(SIGUSR1, true);
	prepare();
	limit(both.server, SO_RCVTIMEO, 20);
	limit(listener, SO_RCVTIMEO, 20);
	all_of(reading, COUNT(reading), SIGUSR1, "restart, SO_RCVTIMEO");
	all_of(accepting, COUNT(accepting), SIGUSR1, "restart, SO_RCVTIMEO");
	limit(both.server, SO_RCVTIMEO, 0);
	limit(listener, SO_RCVTIMEO, 0);
	limit(both.server, SO_SNDTIMEO, 20);
	limit(listener, SO_SNDTIMEO, 20);
	all_of(reading, COUNT(reading), SIGUSR1, "restart, SO_SNDTIMEO");
	all_of(accepting, COUNT(accepting), SIGUSR1, "restart, SO_SNDTIMEO");
	fill(both.client);
	limit(both.client, SO_RCVTIMEO, 20);
	all_of(writing, COUNT(writing), SIGUSR1, "restart, SO_RCVTIMEO");
	limit(both.client, SO_SNDTIMEO, 20);
	all_of(writing, COUNT(writing), SIGUSR1, "restart, SO_SNDTIMEO");
	return 0;
}

/* accept(2), socket(7): SO_RCVTIMEO of a listener limits accept, and the accepted socket has it too; several threads in accept get one
 * connection each; the time of one does not end the other's wait. Cases B09, B39. */
#include "common.h"

static int listener;
static int taken[4];

static void *accepts(void *context) {
	int fd = accept(listener, NULL, NULL);
	taken[*(int *)context] = fd;
	return NULL;
}

static long receive_limit(int fd) {
	struct timeval limit = {-1, -1};
	socklen_t length = sizeof limit;
	must("SO_RCVTIMEO", getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, &length));
	return (long)(limit.tv_sec * 1000 + limit.tv_usec / 1000);
}

static void limit_to(int fd, long ms) {
	struct timeval limit = {ms / 1000, ms % 1000 * 1000};
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 8);
	int numbers[4] = {0, 1, 2, 3}, clients[4];
	pthread_t threads[4];
	for (int i = 0; i < 4; i++) threads[i] = start_thread(accepts, &numbers[i]);
	sleep_ms(100);
	for (int i = 0; i < 4; i++) {
		must("connect", connect_to(clients[i] = new_socket(0), name_of(listener)));
		send_all(clients[i], "x", 1);
	}
	for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
	int bytes = 0;
	for (int i = 0; i < 4; i++) {
		char byte;
		bytes += (int)must("recv", recv(taken[i], &byte, 1, 0));
		close(taken[i]);
		close(clients[i]);
	}
	say("4 threads, %d connections", bytes);

	limit_to(listener, 200);
	int64_t start = now_us();
	report("accept", accept(listener, NULL, NULL));
	report_not_early("accept", start, 200);
	struct pair both = connect_pair(listener);
	say("accepted: limit %ld ms, client: %ld ms", receive_limit(both.server), receive_limit(both.client));
	char byte;
	start = now_us();
	report("recv", recv(both.server, &byte, 1, 0));
	report_not_early("recv", start, 200);
	say("accepted: blocking: %s", yes_no(!is_nonblocking(both.server)));
	limit_to(listener, 0);
	int first = 0, second = 1;
	threads[0] = start_thread(accepts, &first);
	sleep_ms(50);
	limit_to(listener, 100);
	threads[1] = start_thread(accepts, &second);
	pthread_join(threads[1], NULL);
	say("the one with a limit: %s", taken[1] < 0 ? "none" : "one");
	close_pair(both);
	both.client = new_socket(0);
	must("connect", connect_to(both.client, name_of(listener)));
	pthread_join(threads[0], NULL);
	say("the one without: %s", taken[0] < 0 ? "none" : "one");
	return 0;
}

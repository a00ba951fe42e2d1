/* pthread_cancel(3) of threads that wait in recv, poll and accept, at many moments: whether it ends the wait or not, the sockets
 * stay as good as they were. */
#include "common.h"

static int listener;
static struct pair both;

static void *receive(void *context) {
	char bytes[4];
	for (int i = 0; i < *(int *)context; i++)
		if (recv(both.client, bytes, sizeof bytes, MSG_PEEK) < 0) die("recv");
	return NULL;
}

static void *wait_readable(void *context) {
	struct pollfd one = {.fd = both.client, .events = POLLIN};
	for (int i = 0; i < *(int *)context; i++)
		if (poll(&one, 1, -1) < 0) die("poll");
	return NULL;
}

static void *take(void *context) {
	(void)context;
	int fd = accept(listener, NULL, NULL);
	if (fd >= 0) close(fd);
	return NULL;
}

static void cancelled(const char *what, void *(*body)(void *), int delay) {
	int times = 1;
	pthread_t thread = start_thread(body, &times);
	usleep((useconds_t)delay);
	pthread_cancel(thread);
	usleep(1000);
	/* what ends the wait if cancelling did not */
	if (body == take) {
		int fd = new_socket(0);
		must("connect", connect_to(fd, name_of(listener)));
		pthread_join(thread, NULL);
		set_nonblocking(listener, true);
		close(accept(listener, NULL, NULL));
		set_nonblocking(listener, false);
		close(fd);
		return;
	}
	send_all(both.server, "data", 4);
	pthread_join(thread, NULL);
	char bytes[4];
	if (recv_all(both.client, bytes, 4) != 4 || memcmp(bytes, "data", 4)) say("%s: lost", what);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 8);
	both = connect_pair(listener);
	for (int i = 0; i < 20; i++) {
		cancelled("recv", receive, i * 500);
		cancelled("poll", wait_readable, i * 500);
	}
	for (int i = 0; i < 5; i++) cancelled("accept", take, i * 3000);
	send_all(both.client, "end", 3);
	char bytes[3];
	report("the other way", (long)recv_all(both.server, bytes, 3));
	close_pair(both);
	return 0;
}

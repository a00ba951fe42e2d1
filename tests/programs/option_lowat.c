/* socket(7), SO_RCVLOWAT: reads wait for so many bytes, and poll and select tell of no fewer; a read that may not wait, or whose time is
 * over, takes what is there; the end of the stream ends the wait. Case B60. */
#include "common.h"

static void set_low(int fd, int value) {
	int shown = 0;
	socklen_t length = sizeof shown;
	must("SO_RCVLOWAT", setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value));
	must("SO_RCVLOWAT", getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &shown, &length));
	say("SO_RCVLOWAT %d: %d", value, shown);
}

static void look(const char *what, int fd) {
	fd_set set;
	FD_ZERO(&set);
	FD_SET(fd, &set);
	struct timeval now = {0, 0};
	int queued = -1;
	must("FIONREAD", ioctl(fd, FIONREAD, &queued));
	short events = events_now(fd, POLLIN);
	say("%s: poll %s, select %d, queued %d", what, event_names(events), select(fd + 1, &set, NULL, NULL, &now), queued);
}

static int sender;

static void *in_two_parts(void *unused) {
	sleep_ms(100);
	send_all(sender, "abcd", 4);
	sleep_ms(100);
	send_all(sender, "efghij", 6);
	return unused;
}

static void *part_and_end(void *unused) {
	send_all(sender, "abc", 3);
	sleep_ms(100);
	must("shutdown", shutdown(sender, SHUT_WR));
	return unused;
}

static void reads(int fd) {
	char text[20];
	pthread_t thread = start_thread(in_two_parts, NULL);
	report("recv waits for both parts", recv(fd, text, 10, 0));
	pthread_join(thread, NULL);
	thread = start_thread(in_two_parts, NULL);
	report("recv of fewer waits for these", recv(fd, text, 3, 0));
	pthread_join(thread, NULL);
	wait_bytes(fd, 7);
	report("the rest, without waiting", recv(fd, text, sizeof text, MSG_DONTWAIT));
	thread = start_thread(in_two_parts, NULL);
	report("peek waits", recv(fd, text, sizeof text, MSG_PEEK));
	pthread_join(thread, NULL);
	struct iovec vector[2] = {{text, 4}, {text + 4, 10}};
	report("readv", readv(fd, vector, 2));
	struct timeval limit = {.tv_usec = 150000};
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	send_all(sender, "xyz", 3);
	int64_t start = now_us();
	report("fewer when the time is over", recv(fd, text, sizeof text, 0));
	report_not_early("fewer", start, 150);
	report("none", recv(fd, text, sizeof text, 0));
	limit.tv_usec = 0;
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
}

static void waits(int fd) {
	char text[20];
	struct pollfd one = {.fd = fd, .events = POLLIN};
	send_all(sender, "ab", 2);
	wait_bytes(fd, 2);
	int64_t start = now_us();
	report("poll while there are too few", poll(&one, 1, 200));
	report_not_early("poll", start, 200);
	pthread_t thread = start_thread(in_two_parts, NULL);
	report("poll", poll(&one, 1, ARRIVAL_MS));
	pthread_join(thread, NULL);
	wait_bytes(fd, 12);
	look("enough", fd);
	report("recv", recv(fd, text, 5, 0));
	look("fewer", fd);
	set_low(fd, 7);
	look("a lower mark", fd);
	report("recv", recv(fd, text, 20, 0));
}

static void *lowers(void *context) {
	int one = 1;
	sleep_ms(100);
	must("SO_RCVLOWAT", setsockopt(*(int *)context, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one));
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int fd = both.server;
	sender = both.client;
	look("nothing there", fd);
	set_low(fd, 10);
	send_all(sender, "abcdefghi", 9);
	wait_bytes(fd, 9);
	look("9 of 10", fd);
	send_all(sender, "j", 1);
	wait_bytes(fd, 10);
	look("10 of 10", fd);
	char text[20];
	report("recv", recv(fd, text, sizeof text, 0));
	reads(fd);
	waits(fd);
	set_low(fd, 10);
	send_all(sender, "abc", 3);
	wait_bytes(fd, 3);
	struct pollfd one = {.fd = fd, .events = POLLIN};
	pthread_t thread = start_thread(lowers, &fd);
	report("poll while the mark is lowered", poll(&one, 1, ARRIVAL_MS));
	pthread_join(thread, NULL);
	report("recv", recv(fd, text, sizeof text, 0));
	set_low(fd, 10);
	thread = start_thread(part_and_end, NULL);
	report("recv to the end", recv(fd, text, sizeof text, 0));
	pthread_join(thread, NULL);
	report("at the end", recv(fd, text, sizeof text, 0));
	look("at the end", fd);
	set_low(fd, 0);
	set_low(fd, -1);
	close_pair(both);

	/* More than there can be: a full buffer is worth a look. */
	both = new_pair();
	set_low(both.server, 1 << 30);
	static char block[1 << 16];
	set_nonblocking(both.client, true);
	int64_t until = now_us() + 1000000;
	while (now_us() < until && !(events_now(both.server, POLLIN) & POLLIN))
		if (send(both.client, block, sizeof block, MSG_NOSIGNAL) < 0) sleep_ms(1);
	say("a full buffer: %s", event_names(events_now(both.server, POLLIN)));
	return 0;
}

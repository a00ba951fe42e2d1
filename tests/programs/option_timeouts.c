/* socket(7), SO_RCVTIMEO and SO_SNDTIMEO: the call that waits too long returns what it has or EAGAIN, not early; 0 means
 * for ever; values read back; out of range is EDOM. A connect under SO_SNDTIMEO to a listener works. */
#include "common.h"

static void limit(int fd, int option, int ms) {
	struct timeval time = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000}, back = {-1, -1};
	socklen_t length = sizeof back;
	report("set", setsockopt(fd, SOL_SOCKET, option, &time, sizeof time));
	report("get", getsockopt(fd, SOL_SOCKET, option, &back, &length));
	long got = (long)(back.tv_sec * 1000 + back.tv_usec / 1000);
	say("read back within a clock tick: %s, length %u", yes_no(got >= ms && got < ms + 11), length);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	char text[100];
	limit(both.server, SO_RCVTIMEO, 200);
	int64_t start = now_us();
	report("recv", recv(both.server, text, 1, 0));
	report_not_early("recv", start, 200);
	start = now_us();
	report("read", read(both.server, text, 1));
	report_not_early("read", start, 200);
	send_all(both.client, "abc", 3);
	start = now_us();
	report("WAITALL with a part there", recv(both.server, text, 10, MSG_WAITALL));
	report_not_early("WAITALL with a part there", start, 200);
	limit(both.server, SO_RCVTIMEO, 0);

	static char block[1 << 16];
	limit(both.client, SO_SNDTIMEO, 150);
	ssize_t sent;
	int rounds = 0;
	do {
		start = now_us();
		sent = send(both.client, block, sizeof block, 0);
	} while (sent > 0 && rounds++ < 10000); /* a part may be taken before the time is over, and TCP's buffers grow */
	report("send to a full connection", sent);
	report_not_early("send to a full connection", start, 150);

	int listener = new_listener(0, 1);
	limit(listener, SO_RCVTIMEO, 100);
	start = now_us();
	report("accept", accept(listener, NULL, NULL));
	report_not_early("accept", start, 100);
	int client = new_socket(0);
	limit(client, SO_SNDTIMEO, 5000);
	report("connect", connect_to(client, name_of(listener)));

	struct timeval wrong = {.tv_usec = 1000000};
	report("too many microseconds", setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &wrong, sizeof wrong));
	report("short", setsockopt(client, SOL_SOCKET, SO_RCVTIMEO, &wrong, 4));
	return 0;
}

/* Urgent data, tcp(7): TCP carries it beside the stream, and tells of it by poll, sockatmark and SIGURG. No fabric does.
 *
 * border_urgent ADDRESS: sends it in each way, and tells what the other end sees of it and of what follows. */
#include "common.h"

#include <signal.h>

static volatile sig_atomic_t signals;

static void count(int number) {
	(void)number;
	signals++;
}

static const char *const ways[] = {"send", "sendto", "sendmsg", "sendmmsg"};

static long send_urgent(size_t way, int fd) {
	struct iovec vector = {"!", 1};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
	switch (way) {
	case 0: return send(fd, "!", 1, MSG_OOB);
	case 1: return sendto(fd, "!", 1, MSG_OOB | MSG_DONTWAIT, NULL, 0);
	case 2: return sendmsg(fd, &message.msg_hdr, MSG_OOB);
	default: return sendmmsg(fd, &message, 1, MSG_OOB);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	signal(SIGURG, count);
	struct pair both = new_pair();
	must("F_SETOWN", fcntl(both.server, F_SETOWN, getpid()));
	for (size_t way = 0; way < COUNT(ways); way++) {
		char byte = '-', bytes[8] = "";
		bool sent = report(ways[way], send_urgent(way, both.client)) == 1;
		say("  %s", event_names(sent ? wait_for(both.server, POLLPRI) : events_now(both.server, ALL_EVENTS)));
		report("  sockatmark", sockatmark(both.server));
		report("  recv", recv(both.server, &byte, 1, MSG_OOB | MSG_DONTWAIT));
		send_all(both.client, "data", 4);
		say("  %c, then %zu: %s", byte, recv_all(both.server, bytes, 4), bytes);
	}
	say("SIGURG %d times", (int)signals);
	must("shutdown", shutdown(both.client, SHUT_WR));
	report("after shutdown", send(both.client, "!", 1, MSG_OOB | MSG_NOSIGNAL));
	close_pair(both);
	return 0;
}

/* recv(2) and send(2) flags on a stream: MSG_PEEK leaves the data, MSG_DONTWAIT is for one call, MSG_WAITALL waits for
 * all of it or the end, MSG_TRUNC discards (tcp(7)); MSG_MORE and MSG_NOSIGNAL change nothing of the data.
 * recvfrom's and recvmsg's address stays empty on a connected stream. */
#include "common.h"

static void *send_in_parts(void *context) {
	int fd = *(int *)context;
	for (int i = 0; i < 10; i++) {
		char part[100];
		fill_pattern(part, sizeof part, (uint64_t)i * sizeof part, 3);
		send_all(fd, part, sizeof part);
		sleep_ms(20);
	}
	return NULL;
}

static void *send_and_close(void *context) {
	int fd = *(int *)context;
	sleep_ms(50);
	send_all(fd, "0123456789", 10);
	sleep_ms(50);
	close(fd);
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	char text[1001] = "";
	report("DONTWAIT with nothing there", recv(both.server, text, 10, MSG_DONTWAIT));
	report("PEEK|DONTWAIT with nothing there", recv(both.server, text, 10, MSG_PEEK | MSG_DONTWAIT));
	say("still blocking: %s", yes_no(!is_nonblocking(both.server)));

	report("send", send(both.client, "abcdef", 6, MSG_NOSIGNAL));
	wait_bytes(both.server, 6);
	report("PEEK 3", recv(both.server, text, 3, MSG_PEEK));
	say("%.3s", text);
	report("PEEK 10", recv(both.server, text, 10, MSG_PEEK));
	say("%.6s", text);
	struct iovec vectors[2] = {{text, 2}, {text + 2, 2}};
	struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
	report("recvmsg PEEK 2+2", recvmsg(both.server, &message, MSG_PEEK));
	say("%.4s, flags %x", text, (unsigned)message.msg_flags);
	report("recv 2", recv(both.server, text, 2, 0));
	say("%.2s", text);
	report("PEEK|WAITALL what there is", recv(both.server, text, 4, MSG_PEEK | MSG_WAITALL));
	memset(text, '.', 10);
	report("TRUNC 2", recv(both.server, text, 2, MSG_TRUNC));
	report("DONTWAIT 10", recv(both.server, text, 10, MSG_DONTWAIT));
	say("%.2s", text);
	report("DONTWAIT nothing left", recv(both.server, text, 10, MSG_DONTWAIT));

	pthread_t sender = start_thread(send_in_parts, &both.client);
	report("WAITALL 1000", recv(both.server, text, 1000, MSG_WAITALL));
	say("equal: %s", yes_no(has_pattern(text, 1000, 0, 3)));
	pthread_join(sender, NULL);
	sender = start_thread(send_in_parts, &both.client);
	struct iovec parts[3] = {{text, 300}, {text + 300, 0}, {text + 300, 700}};
	struct msghdr whole = {.msg_iov = parts, .msg_iovlen = 3};
	report("recvmsg WAITALL 300+0+700", recvmsg(both.server, &whole, MSG_WAITALL));
	say("equal: %s", yes_no(has_pattern(text, 1000, 0, 3)));
	pthread_join(sender, NULL);

	report("MORE", send(both.client, "more", 4, MSG_MORE));
	report("and done", send(both.client, "!", 1, 0));
	report("WAITALL", recv(both.server, text, 5, MSG_WAITALL));
	say("%.5s", text);

	send_all(both.client, "who", 3);
	struct address from = {.length = sizeof from.storage};
	from.storage.ss_family = 99;
	report("recvfrom", recvfrom(both.server, text, 3, MSG_WAITALL, sockaddr_of(&from), &from.length));
	say("address length %u, family untouched %s", from.length, yes_no(from.storage.ss_family == 99));
	send_all(both.client, "who", 3);
	struct iovec one = {text, 3};
	struct msghdr named = {.msg_iov = &one, .msg_iovlen = 1, .msg_name = &from.storage, .msg_namelen = sizeof from.storage};
	report("recvmsg", recvmsg(both.server, &named, MSG_WAITALL));
	say("name length %u, flags %x", named.msg_namelen, (unsigned)named.msg_flags);

	send_all(both.client, "some", 4);
	wait_bytes(both.server, 4);
	report("PEEK|WAITALL|DONTWAIT a part", recv(both.server, text, 10, MSG_PEEK | MSG_WAITALL | MSG_DONTWAIT));
	struct timeval soon = {.tv_usec = 100 * 1000};
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	report("PEEK|WAITALL until the time-out", recv(both.server, text, 10, MSG_PEEK | MSG_WAITALL));
	soon.tv_usec = 0;
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	sender = start_thread(send_in_parts, &both.client);
	report("PEEK|WAITALL 1001 over several messages", recv(both.server, text, 1001, MSG_PEEK | MSG_WAITALL));
	say("equal: %s", yes_no(!memcmp(text, "some", 4) && has_pattern(text + 4, 997, 0, 3)));
	pthread_join(sender, NULL);
	report("WAITALL", recv(both.server, text, 4, MSG_WAITALL));
	report("WAITALL", recv(both.server, text, 1000, MSG_WAITALL));

	sender = start_thread(send_and_close, &both.client);
	report("PEEK|WAITALL cut short by the end", recv(both.server, text, 1000, MSG_PEEK | MSG_WAITALL));
	report("WAITALL cut short by the end", recv(both.server, text, 1000, MSG_WAITALL));
	report("then", recv(both.server, text, 1000, MSG_WAITALL));
	pthread_join(sender, NULL);
	return 0;
}

/* Transfers of nothing on a stream: send, write and the vector calls return 0 and the peer is not told; read of nothing
 * returns 0 at once (read(2)); recv of nothing returns 0 when there is data and EAGAIN when there is none. */
#include "common.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	char byte = 0;
	struct iovec nothing = {&byte, 0};
	struct msghdr message = {.msg_iov = &nothing, .msg_iovlen = 1}, empty = {0};
	report("send", send(both.client, &byte, 0, 0));
	report("send from nowhere", send(both.client, NULL, 0, 0));
	report("write", write(both.client, &byte, 0));
	report("writev of a zero vector", writev(both.client, &nothing, 1));
	report("writev of no vector", writev(both.client, NULL, 0));
	report("sendmsg of a zero vector", sendmsg(both.client, &message, 0));
	report("sendmsg of no vector", sendmsg(both.client, &empty, 0));
	report("read", read(both.server, &byte, 0));
	report("readv", readv(both.server, &nothing, 1));
	report("recv", recv(both.server, &byte, 0, MSG_DONTWAIT));
	say("server: %s", event_names(events_now(both.server, ALL_EVENTS)));

	send_all(both.client, "ab", 2);
	sleep_ms(100);
	report("recv at first sight", recv(both.server, &byte, 0, MSG_DONTWAIT));
	wait_bytes(both.server, 2);
	report("recv with data", recv(both.server, &byte, 0, 0));
	report("read with data", read(both.server, &byte, 0));
	report("recvmsg with data", recvmsg(both.server, &message, 0));
	report("recvmsg of no vector with data", recvmsg(both.server, &empty, 0));
	report("recv", recv(both.server, &byte, 1, 0));
	say("first byte %c", byte);
	close(both.client);
	report("recv", recv(both.server, &byte, 1, 0));
	say("second byte %c", byte);
	wait_for(both.server, POLLRDHUP);
	report("recv at the end", recv(both.server, &byte, 0, 0));
	report("read at the end", read(both.server, &byte, 0));
	return 0;
}

/* Calls that the state of the socket forbids. connect(2): EISCONN; accept(2), listen(2), bind(2): EINVAL, EADDRINUSE;
 * send(2), recv(2): ENOTCONN, EPIPE. */
#include "common.h"

static void unconnected(const char *what, int fd) {
	char byte = 0;
	struct iovec vector = {&byte, 1};
	say("-- %s", what);
	report("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
	report("read", read(fd, &byte, 1));
	report("readv", readv(fd, &vector, 1));
	report("recv PEEK", recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK));
	report("send", send(fd, &byte, 1, MSG_NOSIGNAL));
	report("sendto without address", sendto(fd, &byte, 1, MSG_NOSIGNAL, NULL, 0));
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	report("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
	report("recvmsg", recvmsg(fd, &message, MSG_DONTWAIT));
	report("shutdown RD", shutdown(fd, SHUT_RD));
	report("shutdown of an unknown kind", shutdown(fd, 7));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int fresh = new_socket(0);
	unconnected("fresh", fresh);
	report("accept", accept(fresh, NULL, NULL));
	report("shutdown WR", shutdown(fresh, SHUT_WR));
	int bound = new_socket(0);
	must("bind", bind_to(bound, local));
	unconnected("bound", bound);
	report("bind again", bind_to(bound, local));
	report("accept", accept(bound, NULL, NULL));

	int listener = new_listener(0, 4), other = new_socket(0);
	report("bind to a port in use", bind_to(other, name_of(listener)));
	struct address unix_like = local;
	unix_like.storage.ss_family = AF_UNIX;
	report("connect to another family", connect_to(other, unix_like));
	struct address short_one = name_of(listener);
	short_one.length = 4;
	report("connect to a short address", connect_to(other, short_one));
	report("bind to a short address", bind_to(other, short_one));

	struct pair both = connect_pair(listener);
	say("-- connected");
	report("connect again", connect_to(both.client, name_of(listener)));
	report("connect the accepted one", connect_to(both.server, name_of(listener)));
	report("bind", bind_to(both.client, local));
	report("listen", listen(both.client, 4));
	report("accept", accept(both.client, NULL, NULL));
	report("shutdown of an unknown kind", shutdown(both.client, 7));
	set_nonblocking(both.client, true);
	report("nonblocking connect again", connect_to(both.client, name_of(listener)));
	char byte = 'x';
	struct address ignored = closed_port();
	report("sendto with an address", sendto(both.client, &byte, 1, 0, sockaddr_of(&ignored), ignored.length));
	report("recv", recv(both.server, &byte, 1, 0));
	close_pair(both);

	say("-- listening");
	set_nonblocking(listener, true);
	report("listen again", listen(listener, 9));
	report("bind", bind_to(listener, local));
	report("connect", connect_to(listener, name_of(listener)));
	char one;
	report("recv", recv(listener, &one, 1, 0));
	report("send", send(listener, &one, 1, MSG_NOSIGNAL));
	return 0;
}

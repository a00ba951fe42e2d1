/* Descriptors that are no sockets, numbers that are not open, arguments that make no sense: EBADF, ENOTSOCK, EINVAL,
 * EAFNOSUPPORT and so on, as socket(2), send(2), recv(2), accept(2), connect(2) and poll(2) list them. */
#include "common.h"

static void every_call(const char *what, int fd) {
	char byte = 0;
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	struct address name = {.length = sizeof name.storage};
	int value = 0;
	socklen_t length = sizeof value;
	say("-- %s", what);
	report("bind", bind_to(fd, local));
	report("listen", listen(fd, 1));
	report("accept", accept(fd, NULL, NULL));
	report("accept4", accept4(fd, NULL, NULL, 0));
	report("connect", connect_to(fd, local));
	report("getsockname", getsockname(fd, sockaddr_of(&name), &name.length));
	report("getpeername", getpeername(fd, sockaddr_of(&name), &name.length));
	report("getsockopt", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length));
	report("setsockopt", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value));
	report("send", send(fd, &byte, 1, MSG_NOSIGNAL));
	report("sendto", sendto(fd, &byte, 1, MSG_NOSIGNAL, NULL, 0));
	report("sendmsg", sendmsg(fd, &message, MSG_NOSIGNAL));
	report("recv", recv(fd, &byte, 1, MSG_DONTWAIT));
	report("recvfrom", recvfrom(fd, &byte, 1, MSG_DONTWAIT, NULL, NULL));
	report("recvmsg", recvmsg(fd, &message, MSG_DONTWAIT));
	report("shutdown", shutdown(fd, SHUT_RDWR));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int gone = both.client, ends[2];
	close_pair(both);
	every_call("closed number", gone);
	report("read", read(gone, ends, 1));
	report("write", write(gone, ends, 1));
	report("fcntl", fcntl(gone, F_GETFL));
	report("dup", dup(gone));
	report("close", close(gone));
	every_call("negative number", -1);
	must("pipe", pipe(ends));
	every_call("pipe", ends[0]);
	int file = (int)must("open", open("/dev/null", O_RDWR));
	every_call("file", file);

	say("-- socket");
	report("unknown family", socket(12345, SOCK_STREAM, 0));
	report("unknown type", socket(local.storage.ss_family, 77, 0));
	report("unknown flag", socket(local.storage.ss_family, SOCK_STREAM | 0x100000, 0));
	report("protocol of another type", socket(local.storage.ss_family, SOCK_STREAM, IPPROTO_UDP));
	report_descriptor("IPPROTO_TCP", socket(local.storage.ss_family, SOCK_STREAM, IPPROTO_TCP));
	report_descriptor("flags", socket(local.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
	return 0;
}

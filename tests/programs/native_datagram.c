// libs: -lrdmacm
// native_datagram: datagrams by the r* functions, of one process to itself.
#include "common.h"
#include <rdma/rsocket.h>

int main(int argc, char **argv) {
	begin(argc, argv);
	int one = (int)must("rsocket", rsocket(AF_INET, SOCK_DGRAM, 0)), two = (int)must("rsocket", rsocket(AF_INET, SOCK_DGRAM, IPPROTO_UDP));
	must("rbind", rbind(two, sockaddr_of(&local), local.length));
	struct address name = {.length = sizeof name.storage};
	must("rgetsockname", rgetsockname(two, sockaddr_of(&name), &name.length));
	report("rsendto", rsendto(one, "hello", 5, 0, sockaddr_of(&name), name.length));
	char text[20] = {0};
	struct address source = {.length = sizeof source.storage};
	long got = rrecvfrom(two, text, sizeof text, 0, sockaddr_of(&source), &source.length);
	say("rrecvfrom: %ld %s", got, text);
	must("rconnect", rconnect(two, sockaddr_of(&source), source.length));
	report("rsend", rsend(two, "yes", 3, 0));
	struct pollfd set = {.fd = one, .events = POLLIN};
	report("rpoll", rpoll(&set, 1, -1));
	struct iovec into = {text, sizeof text};
	struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1};
	report("rrecvmsg", rrecvmsg(one, &message, 0));
	must("rsendto", rsendto(one, "end", 3, 0, sockaddr_of(&name), name.length));
	report("rread", rread(two, text, sizeof text));
	must("rclose", rclose(one));
	must("rclose", rclose(two));
	return 0;
}

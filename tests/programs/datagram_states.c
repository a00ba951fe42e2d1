/* What changes the state of a datagram socket: options, duplicates, fork, shutdown, close, and calls that it does not have. */
#include "datagram.h"

#include <sys/wait.h>

static void options(void) {
	int one = bound_socket(0), two = bound_socket(0), on = 1, value = 0;
	socklen_t length = sizeof value;
	struct address name = name_of(two);
	send_to(one, "before", name);
	must("SO_TIMESTAMP", setsockopt(two, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on));
	send_to(one, "after", name);
	for (int i = 0; i < 2; i++) {
		char text[50] = {0}, control[200];
		struct iovec into = {text, sizeof text};
		struct msghdr message = {.msg_iov = &into, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
		wait_for(two, POLLIN);
		report("recvmsg", recvmsg(two, &message, 0));
		/* Of the first one the time is known only if it was asked for before. */
		say("%s%s", text, i == 0 ? "" : message.msg_controllen ? ", with its time" : ", without its time");
	}
	getsockopt(two, SOL_SOCKET, SO_TYPE, &value, &length);
	say("SO_TYPE is SOCK_DGRAM: %s", yes_no(value == SOCK_DGRAM));
	getsockopt(two, SOL_SOCKET, SO_DOMAIN, &value, &length);
	say("SO_DOMAIN: %s", yes_no(value == local.storage.ss_family));
	getsockopt(two, SOL_SOCKET, SO_PROTOCOL, &value, &length);
	say("SO_PROTOCOL: %s", yes_no(value == IPPROTO_UDP));
	report("TCP_NODELAY", setsockopt(two, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
	struct address broadcast = parse_address("255.255.255.255");
	*port_of(&broadcast) = htons(9);
	int four = socket(AF_INET, SOCK_DGRAM, 0);
	report("broadcast without leave", send_to(four, "x", broadcast));
	struct address loop = parse_address("127.255.255.255");
	*port_of(&loop) = *port_of(&name);
	report("of the loopback, without leave", send_to(four, "x", loop));
	close(one);
	close(two);
	close(four);
}

static void control(void) {
	int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	struct address name = parse_address("127.0.0.1");
	must("bind", bind_to(two, name));
	name = name_of(two);
	must("IP_PKTINFO", setsockopt(two, IPPROTO_IP, IP_PKTINFO, &on, sizeof on));
	union {
		char bytes[CMSG_SPACE(sizeof(struct in_pktinfo))];
		struct cmsghdr header;
	} room = {0};
	char text[50] = {0};
	struct iovec from = {"with an address", 15}, into = {text, sizeof text};
	struct msghdr message = {.msg_name = &name.storage, .msg_namelen = name.length, .msg_iov = &from, .msg_iovlen = 1,
				 .msg_control = &room, .msg_controllen = sizeof room};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	header->cmsg_level = IPPROTO_IP;
	header->cmsg_type = IP_PKTINFO;
	header->cmsg_len = CMSG_LEN(sizeof(struct in_pktinfo));
	((struct in_pktinfo *)CMSG_DATA(header))->ipi_spec_dst.s_addr = htonl(0x7f000005);
	report("sendmsg with control data", sendmsg(one, &message, 0));
	struct sockaddr_in source;
	struct msghdr got = {.msg_name = &source, .msg_namelen = sizeof source, .msg_iov = &into, .msg_iovlen = 1, .msg_control = &room,
			     .msg_controllen = sizeof room};
	wait_for(two, POLLIN);
	report("recvmsg", recvmsg(two, &got, 0));
	header = CMSG_FIRSTHDR(&got);
	say("from %s, with its destination: %s", inet_ntoa(source.sin_addr), yes_no(header && header->cmsg_type == IP_PKTINFO));
	close(one);
	close(two);
}

static void shared(void) {
	int one = datagram_socket(0), two = datagram_socket(0), client = bound_socket(0), on = 1;
	must("SO_REUSEADDR", setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("SO_REUSEADDR", setsockopt(two, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("bind", bind_to(one, local));
	struct address name = name_of(one);
	report("two sockets of one port", bind_to(two, name));
	report("one is for the client alone", connect_to(one, name_of(client)));
	send_to(client, "for one", name);
	report_next("one", one, name_of(client));
	int other = bound_socket(0);
	send_to(other, "for two", name);
	report_next("two", two, name_of(other));
	report("taken without leave", bind_to(datagram_socket(0), name));
	close(one);
	send_to(client, "for two now", name);
	report_next("two", two, name_of(client));
	close(two);
	close(client);
	close(other);
}

static void duplicates(void) {
	int one = bound_socket(0), two = bound_socket(0);
	struct address name = name_of(two);
	int copy = dup(two), third = must("F_DUPFD", fcntl(one, F_DUPFD, 50));
	close(two);
	close(one);
	report("sendto", send_to(third, "by a duplicate", name));
	report_next("at a duplicate", copy, name_of(third));
	int file = open("/dev/null", O_RDWR);
	must("dup2", dup2(file, third));
	report("replaced", send_to(third, "x", name));
	close(copy);
	close(third);
	close(file);
}

static void forks(void) {
	int one = bound_socket(0), two = bound_socket(0);
	struct address name = name_of(two), name_one = name_of(one);
	char text[50] = {0};
	send_to(one, "before", name);
	report_next("the parent", two, name_one);
	pid_t child = fork();
	if (child == 0) {
		/* What comes from now on, the child reads. */
		wait_for(two, POLLIN);
		ssize_t got = recv(two, text, sizeof text, 0);
		say("the child: %zd \"%s\"", got, text);
		send_to(two, "from the child", name_one);
		_exit(0);
	}
	send_to(one, "to the child", name);
	report_next("the parent", one, name);
	waitpid(child, NULL, 0);
	send_to(one, "after", name);
	report_next("the parent", two, name_one);
	close(one);
	close(two);
}

static void processes(void) {
	int server = bound_socket(0), ready[2];
	struct address name = name_of(server);
	must("pipe", pipe(ready));
	pid_t child = fork();
	if (child == 0) {
		/* A socket of the child's own. */
		char byte;
		int own = bound_socket(0);
		struct address own_name = name_of(own);
		must("write", write(ready[1], &own_name, sizeof own_name));
		must("sendto", send_to(own, "from another process", name));
		wait_for(own, POLLIN);
		must("recv", recv(own, &byte, 1, 0));
		_exit(byte == 'q' ? 0 : 1);
	}
	struct address theirs;
	must("read", read(ready[0], &theirs, sizeof theirs));
	report_next("the server", server, theirs);
	send_to(server, "q", theirs);
	int status;
	waitpid(child, &status, 0);
	say("the child: %d", WEXITSTATUS(status));
	int client = datagram_socket(0);
	must("connect", connect_to(client, theirs));
	report("to one that has ended", send(client, "x", 1, 0));
	wait_for(client, POLLERR);
	report("refused", send(client, "x", 1, 0));
	close(client);
	close(server);
}

static void ends(void) {
	int one = bound_socket(0), two = bound_socket(0);
	struct address name = name_of(two);
	char text[50];
	report("listen", listen(two, 1));
	report("accept", accept(two, NULL, NULL));
	report("shutdown of an unconnected one", shutdown(two, SHUT_WR));
	must("connect", connect_to(two, name_of(one)));
	send_to(one, "queued", name);
	wait_for(two, POLLIN);
	report("shutdown", shutdown(two, SHUT_WR));
	report("send", send(two, "x", 1, MSG_NOSIGNAL));
	report("recv", recv(two, text, sizeof text, 0));
	close(two);
	report("closed", recv(two, text, sizeof text, MSG_DONTWAIT));
	report("to the one that is closed", send_to(one, "x", name));
	two = datagram_socket(0);
	must("bind", bind_to(two, name));
	send_to(one, "anew", name);
	report_next("the port has another socket", two, name_of(one));
	close(one);
	close(two);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	options();
	control();
	shared();
	duplicates();
	forks();
	processes();
	ends();
	return 0;
}

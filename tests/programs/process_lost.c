/* A child that uses a connection of its parent's, which goes over a fabric and is the parent's alone: each call says so by the same error,
 * none of them waits or kills, and the parent's connection goes on. (Not to be compared with the kernel, where parent and child share it.) */
#include "process.h"
#include <sys/epoll.h>
#include <sys/sendfile.h>

static struct pair both;

static void reads(int fd) {
	char text[8], control[64];
	struct iovec vector = {.iov_base = text, .iov_len = sizeof text};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct mmsghdr several = {.msg_hdr = message};
	struct sockaddr_storage from;
	socklen_t length = sizeof from;
	report("read", read(fd, text, sizeof text));
	report("readv", readv(fd, &vector, 1));
	report("preadv2", preadv2(fd, &vector, 1, -1, 0));
	report("recv", recv(fd, text, sizeof text, 0));
	report("recv MSG_DONTWAIT", recv(fd, text, sizeof text, MSG_DONTWAIT));
	report("recv MSG_PEEK", recv(fd, text, sizeof text, MSG_PEEK));
	report("recv MSG_TRUNC", recv(fd, text, sizeof text, MSG_TRUNC));
	report("recvfrom", recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&from, &length));
	report("recvmsg", recvmsg(fd, &message, 0));
	report("recvmmsg", recvmmsg(fd, &several, 1, 0, NULL));
}

static void writes(int fd) {
	struct iovec vector = {.iov_base = "text", .iov_len = 4};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	struct mmsghdr several = {.msg_hdr = message};
	int file = (int)must("open", open("/proc/self/exe", O_RDONLY));
	report("write", write(fd, "text", 4));
	report("writev", writev(fd, &vector, 1));
	report("pwritev2", pwritev2(fd, &vector, 1, -1, 0));
	report("send", send(fd, "text", 4, 0));
	report("send MSG_NOSIGNAL", send(fd, "text", 4, MSG_NOSIGNAL));
	report("sendto", sendto(fd, "text", 4, 0, NULL, 0));
	report("sendmsg", sendmsg(fd, &message, 0));
	report("sendmmsg", sendmmsg(fd, &several, 1, 0));
	report("sendfile", sendfile(fd, file, NULL, 100));
	report("dprintf", dprintf(fd, "text"));
	int ends[2];
	must("pipe", pipe(ends));
	report("splice from it", splice(fd, NULL, ends[1], NULL, 10, 0));
	must("write", write(ends[1], "text", 4));
	report("splice to it", splice(ends[0], NULL, fd, NULL, 4, 0));
	close(ends[0]);
	close(ends[1]);
	close(file);
}

static void waits(int fd) {
	struct pollfd one = {.fd = fd, .events = ALL_EVENTS};
	report("poll", poll(&one, 1, -1));
	say("poll: %s", event_names(one.revents));
	one.events = 0;
	report("poll for nothing", poll(&one, 1, -1));
	say("poll for nothing: %s", event_names(one.revents));
	one.events = POLLIN;
	report("ppoll", ppoll(&one, 1, NULL, NULL));
	say("ppoll: %s", event_names(one.revents));
	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	FD_SET(fd, &out);
	report("select", select(fd + 1, &in, &out, NULL, NULL));
	say("select: readable %s, writable %s", yes_no(FD_ISSET(fd, &in)), yes_no(FD_ISSET(fd, &out)));
	int set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
	report("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	report("epoll_wait", epoll_wait(set, &event, 1, -1));
	say("epoll: data %llu, hung up %s", (unsigned long long)event.data.u64, yes_no(event.events & EPOLLHUP));
	close(set);
}

static int parents_set;

static void in_parents_set(void) {
	struct epoll_event events[4];
	int found = (int)report("epoll_wait in the parent's set", epoll_wait(parents_set, events, 4, -1));
	for (int i = 0; i < found; i++)
		say("  %c: %s", (char)events[i].data.u64, event_names((short)events[i].events));
	found = (int)report("once more", epoll_wait(parents_set, events, 4, 20));
	report("EPOLL_CTL_DEL of one", epoll_ctl(parents_set, EPOLL_CTL_DEL, both.server, NULL));
	found = (int)report("after it", epoll_wait(parents_set, events, 4, 20));
}

static void others(int fd) {
	struct address name = {.length = sizeof name.storage};
	report("getpeername", getpeername(fd, sockaddr_of(&name), &name.length));
	report_socket_error("the socket", fd);
	report_socket_error("the socket again", fd);
	report("connect", connect_to(fd, local));
	int flag = 1;
	report("TCP_NODELAY", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &flag, sizeof flag));
	report("F_GETFL", fcntl(fd, F_GETFL) & O_NONBLOCK);
	int copy = (int)must("dup", dup(fd));
	report("read of a duplicate", read(copy, &flag, 1));
	FILE *stream = fdopen(copy, "r+");
	say("a stream on it: %s", yes_no(stream != NULL));
	errno = 0;
	int got = fgetc(stream);
	report("fgetc", got);
	fclose(stream);
	must("dup2", dup2(fd, 0));
	report("read of standard input", read(0, &flag, 1));
}

static void use(void *context) {
	int fd = *(int *)context;
	reads(fd);
	writes(fd);
	waits(fd);
	others(fd);
	in_parents_set();
	report("close", close(fd));
	say("own sockets work: %s", yes_no(own_sockets_work()));
}

static void grandchild(void *context) {
	int fd = *(int *)context;
	report("read", read(fd, &(char){0}, 1));
}

static void child_with_child(void *context) { ended("grandchild", child_of(grandchild, context)); }

int main(int argc, char **argv) {
	begin(argc, argv);
	both = new_pair();
	parents_set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 's'};
	must("epoll_ctl", epoll_ctl(parents_set, EPOLL_CTL_ADD, both.server, &event));
	event = (struct epoll_event){.events = EPOLLIN | EPOLLET, .data.u64 = 'c'};
	must("epoll_ctl", epoll_ctl(parents_set, EPOLL_CTL_ADD, both.client, &event));
	send_all(both.client, "for the parent", 14);
	ended("child", child_of(use, &both.server));
	char text[15] = "";
	say("the parent has read %zu: %s", recv_all(both.server, text, 14), text);
	say("the parent's connection: %s", yes_no(moves(both, 3)));
	ended("child", child_of(child_with_child, &both.client));
	say("the parent's connection: %s", yes_no(moves(both, 3)));
	event.events = 0;
	send_all(both.client, "x", 1);
	say("the parent's set: %d", epoll_wait(parents_set, &event, 1, ARRIVAL_MS));
	return 0;
}

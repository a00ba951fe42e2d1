/* The first call on a connection may be any: each that reads, writes, waits or asks, at either end, and in whichever process has the
 * socket. What comes before and after it is one stream: recv(2), send(2), poll(2), select(2), epoll(7), ioctl(2), sendfile(2). */
#include "deferred.h"
#include <sys/epoll.h>
#include <sys/sendfile.h>

enum { HEAD = 100, TAIL = 50000 };

static int go[2]; /* the end under test tells its peer to send */

static void tell(void) { must("write", write(go[1], "g", 1)); }

static void wait_told(void) {
	char byte;
	if (read(go[0], &byte, 1) != 1) die("the word to go on");
}

/* The first call; what it has read or written of the head. */
typedef long first_call(int fd);

static long taken(const char *what, const char *buffer, long got) {
	if (got > 0) say("%s: %s", what, yes_no(has_pattern(buffer, (size_t)got, 0, 1)));
	if (got <= 0) report(what, got);
	return got > 0 ? got : 0;
}

static char head[HEAD];

static long by_recv(int fd) { return tell(), taken("recv", head, recv(fd, head, HEAD, 0)); }
static long by_read(int fd) { return tell(), taken("read", head, read(fd, head, 7)); }
static long by_waitall(int fd) { return tell(), taken("all", head, recv(fd, head, HEAD, MSG_WAITALL)); }
static long by_peek(int fd) { return tell(), taken("peek", head, recv(fd, head, HEAD, MSG_PEEK)), 0; }

static long by_recvfrom(int fd) {
	struct sockaddr_storage from;
	socklen_t length = sizeof from;
	return tell(), taken("recvfrom", head, recvfrom(fd, head, HEAD, 0, (struct sockaddr *)&from, &length));
}

static long by_readv(int fd) {
	struct iovec parts[] = {{head, 3}, {head + 3, HEAD - 3}};
	return tell(), taken("readv", head, readv(fd, parts, 2));
}

static long by_recvmsg(int fd) {
	struct iovec parts[] = {{head, 3}, {head + 3, HEAD - 3}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	return tell(), taken("recvmsg", head, recvmsg(fd, &message, 0));
}

/* read(2): "In the absence of any errors, a read() with a count of 0 returns zero". The peer waits for a word. */
static long by_nothing(int fd) {
	report("read of nothing", read(fd, head, 0));
	report("readv of no part", readv(fd, NULL, 0));
	report("write of nothing", write(fd, head, 0));
	report("recv of nothing, MSG_DONTWAIT", recv(fd, head, 0, MSG_DONTWAIT));
	return tell(), 0;
}

static long by_fionread(int fd) {
	int there = -1;
	report("FIONREAD, nothing there", ioctl(fd, FIONREAD, &there));
	say("there: %d", there);
	tell();
	for (int waited = 0; waited < ARRIVAL_MS && there < HEAD; waited++) {
		must("FIONREAD", ioctl(fd, FIONREAD, &there));
		sleep_ms(1);
	}
	say("there: %d", there);
	return 0;
}

static long by_dontwait(int fd) {
	report("nothing there", recv(fd, head, HEAD, MSG_DONTWAIT));
	return tell(), 0;
}

static long by_nonblocking(int fd) {
	set_nonblocking(fd, true);
	report("nothing there", read(fd, head, HEAD));
	tell();
	wait_for(fd, POLLIN);
	long got = taken("then", head, read(fd, head, HEAD));
	set_nonblocking(fd, false);
	return got;
}

static long by_silence(int fd) {
	struct timeval limit = {0, 60000};
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	int64_t start = now_us();
	report("a silent peer", recv(fd, head, HEAD, 0));
	report_not_early("SO_RCVTIMEO", start, 60);
	limit.tv_usec = 0;
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	return tell(), 0;
}

/* Again and again, as long as the connection may be on its way. */
static long by_poll_now(int fd) {
	say("poll: %s", event_names(wait_for(fd, POLLOUT)));
	return tell(), 0;
}

static long by_poll_silence(int fd) {
	struct pollfd one = {.fd = fd, .events = POLLIN};
	int64_t start = now_us();
	report("poll, a silent peer", poll(&one, 1, 60));
	report_not_early("poll", start, 60);
	return tell(), 0;
}

static long by_poll(int fd) {
	struct pollfd one = {.fd = fd, .events = POLLIN};
	tell();
	report("poll", poll(&one, 1, ARRIVAL_MS));
	say("poll: %s", event_names(one.revents));
	return 0;
}

static long by_select(int fd) {
	fd_set in, out;
	FD_ZERO(&in);
	FD_ZERO(&out);
	FD_SET(fd, &in);
	tell();
	struct timeval limit = {ARRIVAL_MS / 1000, 0};
	report("select", select(fd + 1, &in, &out, NULL, &limit));
	say("readable: %s", yes_no(FD_ISSET(fd, &in)));
	return 0;
}

static long by_select_out(int fd) {
	fd_set out;
	FD_ZERO(&out);
	FD_SET(fd, &out);
	report("select", select(fd + 1, NULL, &out, NULL, NULL));
	say("writable: %s", yes_no(FD_ISSET(fd, &out)));
	return tell(), 0;
}

static void wait_in(const char *what, int set, int timeout) {
	struct epoll_event event = {0};
	int found = (int)must("epoll_wait", epoll_wait(set, &event, 1, timeout));
	say("%s: %s", what, found ? event_names((short)event.events) : "none");
}

/* Level, edge and one-shot: in silence, with data, and again with the same data. */
static long by_epoll(int fd, uint32_t how) {
	struct epoll_event event = {.events = EPOLLIN | how};
	int set = (int)must("epoll_create1", epoll_create1(0));
	must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	wait_in("silence", set, 20);
	tell();
	wait_in("data", set, ARRIVAL_MS);
	wait_bytes(fd, HEAD);
	wait_in("the same data", set, how ? 0 : ARRIVAL_MS);
	event.events = EPOLLIN | EPOLLOUT | how;
	must("EPOLL_CTL_MOD", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
	wait_in("both", set, ARRIVAL_MS);
	close(set);
	return 0;
}

static long by_level(int fd) { return by_epoll(fd, 0); }
static long by_edge(int fd) { return by_epoll(fd, EPOLLET); }
static long by_oneshot(int fd) { return by_epoll(fd, EPOLLONESHOT); }

static long by_options(int fd) {
	int type = 0;
	socklen_t length = sizeof type;
	must("SO_TYPE", getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length));
	struct tcp_info info = {0};
	length = sizeof info;
	must("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("a stream: %s, established: %s", yes_no(type == SOCK_STREAM), yes_no(info.tcpi_state == TCP_ESTABLISHED));
	report_socket_error("asked", fd);
	return tell(), 0;
}

/* What is written first: the same head, so that the peer can check it. */
static long put(const char *what, long sent) { return report(what, sent); }

static long by_send(int fd) { return put("send", send(fd, head, HEAD, MSG_NOSIGNAL)); }
static long by_write(int fd) { return put("write", write(fd, head, HEAD)); }
/* EAGAIN, as long as the connection may be on its way. */
static long by_send_one(int fd) {
	ssize_t sent;
	while ((sent = send(fd, head, 1, MSG_DONTWAIT)) < 0 && errno == EAGAIN) wait_for(fd, POLLOUT);
	return put("send", sent);
}

static long by_send_more(int fd) { return put("send", send(fd, head, 50, MSG_MORE)) + put("send", send(fd, head + 50, 50, 0)); }
static long by_send_nothing(int fd) { return put("send", send(fd, head, 0, 0)); }

static long by_writev(int fd) {
	struct iovec parts[] = {{head, 30}, {head + 30, HEAD - 30}};
	return put("writev", writev(fd, parts, 2));
}

static long by_sendmsg(int fd) {
	struct iovec parts[] = {{head, 30}, {head + 30, HEAD - 30}};
	struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
	return put("sendmsg", sendmsg(fd, &message, 0));
}

static long by_sendfile(int fd) {
	int file = (int)must("memfd_create", memfd_create("file", 0));
	must("write", write(file, head, HEAD));
	off_t from = 0;
	long sent = put("sendfile", sendfile(fd, file, &from, HEAD));
	close(file);
	return sent;
}

static long by_splice(int fd) {
	int ends[2];
	must("pipe", pipe(ends));
	must("write", write(ends[1], head, HEAD));
	long sent = put("splice", splice(ends[0], NULL, fd, NULL, HEAD, 0));
	close(ends[0]);
	close(ends[1]);
	return sent;
}

static long by_dprintf(int fd) {
	head[HEAD - 1] = 0;
	return put("dprintf", dprintf(fd, "%.5s", "head!")), 0;
}

enum kind { READS, WRITES, PRINTS };

static const struct {
	const char *name;
	enum kind kind;
	first_call *first;
} calls[] = {
    {"recv", READS, by_recv},
    {"read", READS, by_read},
    {"recv MSG_WAITALL", READS, by_waitall},
    {"recv MSG_PEEK", READS, by_peek},
    {"recvfrom", READS, by_recvfrom},
    {"readv", READS, by_readv},
    {"recvmsg", READS, by_recvmsg},
    {"nothing", READS, by_nothing},
    {"FIONREAD", READS, by_fionread},
    {"recv MSG_DONTWAIT", READS, by_dontwait},
    {"read O_NONBLOCK", READS, by_nonblocking},
    {"recv, SO_RCVTIMEO", READS, by_silence},
    {"poll, no time", READS, by_poll_now},
    {"poll, in silence", READS, by_poll_silence},
    {"poll", READS, by_poll},
    {"select", READS, by_select},
    {"select for writing", READS, by_select_out},
    {"epoll", READS, by_level},
    {"epoll EPOLLET", READS, by_edge},
    {"epoll EPOLLONESHOT", READS, by_oneshot},
    {"getsockopt", READS, by_options},
    {"send", WRITES, by_send},
    {"write", WRITES, by_write},
    {"send MSG_DONTWAIT", WRITES, by_send_one},
    {"send MSG_MORE", WRITES, by_send_more},
    {"send of nothing", WRITES, by_send_nothing},
    {"writev", WRITES, by_writev},
    {"sendmsg", WRITES, by_sendmsg},
    {"sendfile", WRITES, by_sendfile},
    {"splice", WRITES, by_splice},
    {"dprintf", PRINTS, by_dprintf},
};

/* The end under test. */
static void tested(int fd, long number) {
	enum kind kind = calls[number].kind;
	fill_pattern(head, HEAD, 0, 1);
	long done = calls[number].first(fd);
	if (kind == READS) {
		long rest = HEAD - done;
		if (recv_all(fd, head, (size_t)rest) != (size_t)rest) die("the rest of the head");
		say("the rest: %s", yes_no(has_pattern(head, (size_t)rest, (uint64_t)done, 1)));
	} else if (kind == WRITES) {
		send_all(fd, head + done, (size_t)(HEAD - done));
	}
	send_pattern(fd, TAIL, 6000, 2);
	say("to and fro: %lu", recv_pattern(fd, TAIL, 6000, 2));
}

static void peer(int fd, long number) {
	static char buffer[HEAD];
	switch (calls[number].kind) {
	case READS:
		wait_told();
		fill_pattern(buffer, HEAD, 0, 1);
		send_all(fd, buffer, HEAD);
		break;
	case WRITES:
		recv_all(fd, buffer, HEAD);
		say("peer: the head: %s", yes_no(has_pattern(buffer, HEAD, 0, 1)));
		break;
	case PRINTS:
		recv_all(fd, buffer, 5);
		say("peer: the head: %.5s", buffer);
	}
	say("peer: to and fro: %lu", recv_pattern(fd, TAIL, 6000, 2));
	send_pattern(fd, TAIL, 6000, 2);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	must("pipe", pipe(go));
	for (size_t call = 0; call < COUNT(calls); call++)
		for (enum style style = OWN; style < STYLES; style++) {
			say("%s first, at the server (%s)", calls[call].name, style_names[style]);
			talk(style, tested, peer, (long)call);
			say("%s first, at the client (%s)", calls[call].name, style_names[style]);
			talk(style, peer, tested, (long)call);
		}
	return 0;
}

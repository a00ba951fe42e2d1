/* Programs that mix libc's functions with syscall(2), as libuv does: sockets made by the one are used by the other, and calls that have
 * nothing to do with sockets pass. Case B19. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/syscall.h>

static char text[64];

static struct pair raw_pair(void) {
	struct address name;
	int listener = (int)must("socket", syscall(SYS_socket, local.storage.ss_family, SOCK_STREAM, 0));
	int on = 1;
	report("setsockopt", syscall(SYS_setsockopt, listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	report("bind", syscall(SYS_bind, listener, &local.storage, local.length));
	report("listen", syscall(SYS_listen, listener, 8));
	name.length = sizeof name.storage;
	report("getsockname", syscall(SYS_getsockname, listener, &name.storage, &name.length));
	struct pair made = {.client = (int)must("socket", syscall(SYS_socket, local.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0))};
	report("connect", syscall(SYS_connect, made.client, &name.storage, name.length));
	made.server = report_descriptor("accept4", (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_NONBLOCK));
	say("flags: %s, %s", yes_no(is_cloexec(made.client)), yes_no(is_nonblocking(made.server)));
	report("close", syscall(SYS_close, listener));
	return made;
}

static void data(struct pair both) {
	struct iovec vector = {text, 2};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	struct mmsghdr messages[1] = {{.msg_hdr = message}};
	strcpy(text, "ab");
	report("write", syscall(SYS_write, both.client, text, 2));
	report("writev", syscall(SYS_writev, both.client, &vector, 1));
	report("sendto", syscall(SYS_sendto, both.client, text, 2, 0, NULL, 0));
	report("sendmsg", syscall(SYS_sendmsg, both.client, &message, 0));
	report("sendmmsg", syscall(SYS_sendmmsg, both.client, messages, 1, 0));
	report("pwritev2", syscall(SYS_pwritev2, both.client, &vector, 1, -1L, 0L, 0));
	wait_bytes(both.server, 12);
	int queued = 0;
	report("ioctl", syscall(SYS_ioctl, both.server, FIONREAD, &queued));
	say("queued: %d", queued);
	report("read", syscall(SYS_read, both.server, text, 2));
	report("readv", syscall(SYS_readv, both.server, &vector, 1));
	report("recvfrom", syscall(SYS_recvfrom, both.server, text, 2, 0, NULL, NULL));
	report("recvmsg", syscall(SYS_recvmsg, both.server, &message, 0));
	report("recvmmsg", syscall(SYS_recvmmsg, both.server, messages, 1, 0, NULL));
	report("preadv2", syscall(SYS_preadv2, both.server, &vector, 1, -1L, 0L, 0));
	say("%s", text);
	report("preadv2, nothing", syscall(SYS_preadv2, both.server, &vector, 1, -1L, 0L, RWF_NOWAIT));
	report("pread64", syscall(SYS_pread64, both.server, text, 1, 0));
	report("pwrite64", syscall(SYS_pwrite64, both.server, text, 1, 0));
	report("preadv", syscall(SYS_preadv, both.server, &vector, 1, 0L, 0L));
	report("pwritev", syscall(SYS_pwritev, both.server, &vector, 1, 0L, 0L));
	report("lseek", syscall(SYS_lseek, both.server, 0, SEEK_CUR));
	int file = (int)must("memfd_create", syscall(SYS_memfd_create, "file", 0)), ends[2];
	must("write", write(file, "content", 7));
	off_t offset = 4;
	report("sendfile", syscall(SYS_sendfile, both.client, file, &offset, 3));
	wait_bytes(both.server, 3);
	must("pipe2", syscall(SYS_pipe2, ends, 0));
	report("splice", syscall(SYS_splice, both.server, NULL, ends[1], NULL, 10, SPLICE_F_NONBLOCK));
	report("splice back", syscall(SYS_splice, ends[0], NULL, both.client, NULL, 10, SPLICE_F_NONBLOCK));
	wait_bytes(both.server, 3);
	report("read", read(both.server, text, 10));
	say("%.3s", text);
	close(file);
	close(ends[0]);
	close(ends[1]);
}

static void waits(struct pair both) {
	struct pollfd one = {.fd = both.server, .events = POLLIN};
	struct timespec some = {.tv_nsec = 30 * 1000 * 1000}, none = {0};
	fd_set set;
	struct {
		void *mask;
		size_t size;
	} mask = {NULL, 8};
	report("ppoll, nothing", syscall(SYS_ppoll, &one, 1, &some, NULL, 8));
	say("time left: %ld.%ld", (long)some.tv_sec, some.tv_nsec);
	some.tv_nsec = 30 * 1000 * 1000;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	report("pselect6, nothing", syscall(SYS_pselect6, both.server + 1, &set, NULL, NULL, &some, &mask));
	say("time left: %ld.%ld, set: %s", (long)some.tv_sec, some.tv_nsec, yes_no(FD_ISSET(both.server, &set)));
	send_all(both.client, "x", 1);
	some = (struct timespec){.tv_sec = 100};
	report("ppoll", syscall(SYS_ppoll, &one, 1, &some, NULL, 8));
	say("%s, time left: %s", event_names(one.revents), yes_no(some.tv_sec >= 90 && some.tv_sec < 100));
	FD_SET(both.server, &set);
	report("pselect6", syscall(SYS_pselect6, both.server + 1, &set, NULL, NULL, &some, NULL));
	say("time left: %s, set: %s", yes_no(some.tv_sec >= 80 && some.tv_sec < 100), yes_no(FD_ISSET(both.server, &set)));
	some.tv_nsec = -1;
	report("ppoll, no time", syscall(SYS_ppoll, &one, 1, &some, NULL, 8));
	say("time as it was: %s", yes_no(some.tv_nsec == -1));
	report("ppoll at once", syscall(SYS_ppoll, &one, 1, &none, NULL, 8));
#ifdef SYS_poll
	report("poll", syscall(SYS_poll, &one, 1, -1));
	struct timeval time = {.tv_sec = 100};
	report("select", syscall(SYS_select, both.server + 1, &set, NULL, NULL, &time));
	say("time left: %s", yes_no(time.tv_sec >= 90 && time.tv_sec <= 100));
#endif
	report("read", syscall(SYS_read, both.server, text, 1));
}

static void numbers(struct pair both) {
	int value = 0;
	socklen_t length = sizeof value;
	report("getsockopt", syscall(SYS_getsockopt, both.client, SOL_SOCKET, SO_TYPE, &value, &length));
	say("stream: %s", yes_no(value == SOCK_STREAM));
	struct address name = {.length = sizeof name.storage};
	report("getpeername", syscall(SYS_getpeername, both.client, &name.storage, &name.length));
	int second = report_descriptor("dup", (int)syscall(SYS_dup, both.client));
	int third = report_descriptor("dup3", (int)syscall(SYS_dup3, both.client, 300, O_CLOEXEC));
	int fourth = report_descriptor("F_DUPFD", (int)syscall(SYS_fcntl, both.client, F_DUPFD, 310));
	report("dup3 onto itself", syscall(SYS_dup3, third, third, 0));
	report("close", syscall(SYS_close, both.client));
	report("send by a duplicate", send(third, "d", 1, 0));
	report("shutdown", syscall(SYS_shutdown, fourth, SHUT_WR));
	report("read", recv(both.server, text, 10, MSG_WAITALL));
	report("close_range", syscall(SYS_close_range, 300, 310, 0));
	report("closed", syscall(SYS_close, third));
	struct stat state;
	report("fstat", fstat(second, &state));
	say("a socket: %s", yes_no(S_ISSOCK(state.st_mode)));
	close(second);
	/* the number of a socket, closed by the one, comes back from the other as a file */
	int file = (int)must("openat", syscall(SYS_openat, AT_FDCWD, "/dev/zero", O_RDWR));
	text[0] = 7;
	report("read of a file", read(file, text, 1));
	say("%d", text[0]);
	close(file);
	struct epoll_event event = {.events = EPOLLIN};
	int set = (int)must("epoll_create1", syscall(SYS_epoll_create1, 0)), timer = eventfd(1, 0);
	report("epoll_ctl", syscall(SYS_epoll_ctl, set, EPOLL_CTL_ADD, timer, &event));
	report("epoll_pwait", syscall(SYS_epoll_pwait, set, &event, 1, 0, NULL, 8));
	say("getpid: %s", yes_no(syscall(SYS_getpid) == getpid()));
	report("unknown", syscall(100000));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = raw_pair();
	data(both);
	waits(both);
	numbers(both);
	report("the peer's end", syscall(SYS_read, both.server, text, 1));
	report("close", syscall(SYS_close, both.server));
	return 0;
}

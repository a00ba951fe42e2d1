/* The body of io_every and io_every_64, which are compiled with other flags. */
#include "common.h"
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

static struct pair both;
static char text[64];

/* Ten bytes are there for the server to read. */
static void refill(void) {
	while (recv(both.server, text, sizeof text, MSG_DONTWAIT) > 0) {
	}
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
}

static void expect(const char *what, long result) {
	report(what, result);
	char got[64];
	wait_for(both.server, POLLIN);
	sleep_ms(1);
	ssize_t length = recv(both.server, got, sizeof got, 0);
	say("  arrived: %.*s", (int)length, got);
}

static void reading(void) {
	struct iovec vectors[2] = {{text, 1}, {text + 1, 1}};
	struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
	struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
	refill();
	report("read", read(both.server, text, 2));
	report("readv", readv(both.server, vectors, 2));
	report("recv", recv(both.server, text, 1, 0));
	report("recvfrom", recvfrom(both.server, text, 1, 0, NULL, NULL));
	report("recvmsg", recvmsg(both.server, &message, 0));
	refill();
	report("recvmmsg", recvmmsg(both.server, messages, 2, 0, NULL));
	say("  %u, %u", messages[0].msg_len, messages[1].msg_len);
	report("preadv2", preadv2(both.server, vectors, 2, -1, 0));
	report("preadv2 NOWAIT", preadv2(both.server, vectors, 2, -1, RWF_NOWAIT));
	report("preadv2 HIPRI|DSYNC|SYNC", preadv2(both.server, vectors, 2, -1, RWF_HIPRI | RWF_DSYNC | RWF_SYNC));
	report("preadv2 NOWAIT, nothing", preadv2(both.server, vectors, 2, -1, RWF_NOWAIT));
	report("preadv2 unknown", preadv2(both.server, vectors, 2, -1, 1 << 20));
	report("preadv2 with an offset", preadv2(both.server, vectors, 2, 0, 0));
	report("pread", pread(both.server, text, 2, 0));
	report("preadv", preadv(both.server, vectors, 2, 0));
	report("lseek SET", lseek(both.server, 0, SEEK_SET));
	report("lseek END", lseek(both.server, 0, SEEK_END));
	refill();
	report("lockf", lockf(both.server, F_TEST, 0));
}

static void writing(void) {
	struct iovec vectors[2] = {{"a", 1}, {"b", 1}};
	struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
	struct mmsghdr messages[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
	while (recv(both.server, text, sizeof text, MSG_DONTWAIT) > 0) {
	}
	expect("write", write(both.client, "w", 1));
	expect("writev", writev(both.client, vectors, 2));
	expect("send", send(both.client, "s", 1, MSG_NOSIGNAL));
	expect("sendto", sendto(both.client, "t", 1, 0, NULL, 0));
	expect("sendmsg", sendmsg(both.client, &message, 0));
	expect("sendmmsg", sendmmsg(both.client, messages, 2, 0));
	expect("pwritev2", pwritev2(both.client, vectors, 2, -1, 0));
	expect("pwritev2 NOWAIT", pwritev2(both.client, vectors, 2, -1, RWF_NOWAIT));
	report("pwritev2 unknown", pwritev2(both.client, vectors, 2, -1, 1 << 20));
	report("pwritev2 with an offset", pwritev2(both.client, vectors, 2, 0, 0));
	report("pwrite", pwrite(both.client, "w", 1, 0));
	report("pwritev", pwritev(both.client, vectors, 2, 0));
	int file = memfd_create("file", 0);
	must("write", write(file, "content", 7));
	off_t offset = 3;
	expect("sendfile", sendfile(both.client, file, &offset, 100));
	say("  offset %ld", (long)offset);
	must("lseek", lseek(file, 1, SEEK_SET));
	expect("sendfile from the position", sendfile(both.client, file, NULL, 2));
	say("  position %ld", (long)lseek(file, 0, SEEK_CUR));
	close(file);
}

static void waiting(void) {
	refill();
	struct pollfd one = {.fd = both.server, .events = ALL_EVENTS};
	struct timespec soon = {0};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	report("poll", poll(&one, 1, 0));
	say("  %s", event_names(one.revents));
	report("ppoll", ppoll(&one, 1, &soon, NULL));
	report("select", select(both.server + 1, &set, NULL, NULL, &(struct timeval){0}));
	report("pselect", pselect(both.server + 1, &set, NULL, NULL, &soon, NULL));
}

static void states(void) {
	struct stat state;
	struct statfs filesystem;
	struct statvfs virtual;
	report("fstat", fstat(both.client, &state));
	say("  a socket: %s", yes_no(S_ISSOCK(state.st_mode)));
	report("fstatfs", fstatfs(both.client, &filesystem));
	report("fstatvfs", fstatvfs(both.client, &virtual));
	report("isfdtype SOCK", isfdtype(both.client, S_IFSOCK));
	report("isfdtype REG", isfdtype(both.client, S_IFREG));
	report("sockatmark", sockatmark(both.client));
	report("isatty", isatty(both.client));
	report("fsync", fsync(both.client));
	report("fdatasync", fdatasync(both.client));
	report("ftruncate", ftruncate(both.client, 0));
	report("posix_fallocate", posix_fallocate(both.client, 0, 1));
	report("posix_fadvise", posix_fadvise(both.client, 0, 1, POSIX_FADV_NORMAL));
	report("flock", flock(both.client, LOCK_SH));
	report("fchdir", fchdir(both.client));
	report("mmap", mmap(NULL, 4096, PROT_READ, MAP_SHARED, both.client, 0) == MAP_FAILED ? -1 : 0);
	report("F_GETFL", fcntl(both.client, F_GETFL) & ~O_LARGEFILE);
	report("F_GETOWN", fcntl(both.client, F_GETOWN));
	report("F_SETOWN", fcntl(both.client, F_SETOWN, getpid()));
	say("  mine: %s", yes_no(fcntl(both.client, F_GETOWN) == getpid()));
	struct f_owner_ex owner = {0};
	report("F_GETOWN_EX", fcntl(both.client, F_GETOWN_EX, &owner));
	say("  mine: %s", yes_no(owner.pid == getpid()));
	report("F_SETOWN", fcntl(both.client, F_SETOWN, 0));
	report("F_SETSIG", fcntl(both.client, F_SETSIG, SIGUSR1));
	report("F_GETSIG", fcntl(both.client, F_GETSIG));
	report("F_SETSIG", fcntl(both.client, F_SETSIG, 0));
	report("F_GETLEASE", fcntl(both.client, F_GETLEASE));
	report("F_GETPIPE_SZ", fcntl(both.client, F_GETPIPE_SZ));
	report("F_GET_SEALS", fcntl(both.client, F_GET_SEALS));
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	report("F_GETLK", fcntl(both.client, F_GETLK, &lock));
	report("unknown command", fcntl(both.client, 9999, 0));
}

static void names(void) {
	struct sockaddr_storage name;
	struct address own = name_of(both.client);
	socklen_t length = 2;
	memset(&name, 7, sizeof name);
	report("getsockname, room of 2", getsockname(both.client, (struct sockaddr *)&name, &length));
	say("  length %u, family %s, more untouched %s", length, yes_no(name.ss_family == local.storage.ss_family),
	    yes_no(((char *)&name)[2] == 7));
	length = 0;
	report("getpeername, no room", getpeername(both.client, (struct sockaddr *)&name, &length));
	say("  length %u", length);
	length = 0;
	report("getpeername, NULL, no room", getpeername(both.client, NULL, &length));
	length = (socklen_t)-1;
	report("getpeername, negative room", getpeername(both.client, (struct sockaddr *)&name, &length));
	length = 4000;
	report("getpeername, much room", getpeername(both.server, (struct sockaddr *)&name, &length));
	say("  length %u, the client's: %s", length, yes_no(!memcmp(&name, &own.storage, own.length)));
	report("connect again", connect_to(both.client, name_of(both.server)));
	report("bind", bind_to(both.client, local));
	report("listen", listen(both.client, 1));
	report("accept", accept(both.client, NULL, NULL));
	report("accept4", accept4(both.client, NULL, NULL, SOCK_NONBLOCK));
	report("accept4, unknown flags", accept4(both.client, NULL, NULL, 1));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	both = new_pair();
	reading();
	writing();
	waiting();
	states();
	names();
	report("shutdown, unknown", shutdown(both.client, 7));
	report("shutdown", shutdown(both.client, SHUT_RDWR));
	wait_for(both.server, POLLRDHUP);
	report("close", close(both.client));
	report("close again", close(both.client));
	return 0;
}

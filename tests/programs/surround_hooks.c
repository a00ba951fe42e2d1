/* A library that is preloaded beside ours, whose constructor calls all that ours interposes: perhaps before ours is set up. With MALLOC
 * defined (surround_malloc) it interposes malloc too, and reads, writes and closes there. Preloaded, not run: its main is nobody's. */
// flags: -shared -fPIC
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define REQUIRE(what)                                                                                                                        \
	do {                                                                                                                                \
		if (!(what)) {                                                                                                              \
			static const char text[] = "constructor: " #what " failed\n";                                                       \
			syscall(SYS_write, 2, text, sizeof text - 1);                                                                       \
			_exit(99);                                                                                                          \
		}                                                                                                                           \
	} while (0)

#ifdef MALLOC
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static unsigned long calls;

/* What no allocator does, and each may: descriptors that are closed, one that is good, and sets. */
static void disturb(void) {
	int error = errno;
	char byte;
	unsigned long count = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
	REQUIRE(read(-1, &byte, 1) == -1);
	REQUIRE(write(1000000, &byte, 1) == -1);
	if (count % 16 == 0) {
		int fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
		if (fd >= 0) {
			REQUIRE(read(fd, &byte, 1) == 1);
			REQUIRE(write(fd, &byte, 1) == 1);
			REQUIRE(close(fd) == 0);
		}
	}
	if (count % 64 == 0) {
		int set = epoll_create1(EPOLL_CLOEXEC), fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		struct epoll_event event = {.events = EPOLLIN};
		if (set >= 0 && fd >= 0) REQUIRE(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
		if (set >= 0) close(set);
		if (fd >= 0) close(fd);
	}
	errno = error;
}

void *malloc(size_t size) {
	static __thread int within __attribute__((tls_model("initial-exec")));
	if (!within++) disturb();
	within--;
	return __libc_malloc(size);
}

void free(void *memory) {
	static __thread int within __attribute__((tls_model("initial-exec")));
	if (!within++) disturb();
	within--;
	__libc_free(memory);
}

void *realloc(void *memory, size_t size) { return __libc_realloc(memory, size); }
void *calloc(size_t count, size_t size) { return __libc_calloc(count, size); }
#endif

static void of_sockets(void) {
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr *name = (struct sockaddr *)&at;
	socklen_t length = sizeof at, size = sizeof(int);
	char bytes[16] = "sixteen letters";
	struct iovec part = {bytes, 5};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0), value = 1;
	REQUIRE(listener >= 0 && client >= 0);
	REQUIRE(setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &value, sizeof value) == 0);
	REQUIRE(getsockopt(listener, SOL_SOCKET, SO_TYPE, &value, &size) == 0 && value == SOCK_STREAM);
	REQUIRE(bind(listener, name, sizeof at) == 0 && listen(listener, 4) == 0);
	REQUIRE(getsockname(listener, name, &length) == 0 && connect(client, name, sizeof at) == 0);
	int server = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	REQUIRE(server >= 0 && getpeername(client, name, &length) == 0);
	REQUIRE(send(client, bytes, 5, 0) == 5 && write(client, bytes, 5) == 5 && writev(client, &part, 1) == 5);
	REQUIRE(sendto(client, bytes, 5, 0, NULL, 0) == 5 && sendmsg(client, &message, 0) == 5);
	struct pollfd one = {.fd = server, .events = POLLIN};
	REQUIRE(poll(&one, 1, 5000) == 1 && ppoll(&one, 1, NULL, NULL) == 1);
	fd_set set;
	FD_ZERO(&set);
	FD_SET(server, &set);
	struct timeval soon = {5, 0};
	REQUIRE(select(server + 1, &set, NULL, NULL, &soon) == 1 && pselect(server + 1, &set, NULL, NULL, NULL, NULL) == 1);
	REQUIRE(recv(server, bytes, 5, MSG_WAITALL) == 5 && read(server, bytes, 5) == 5 && readv(server, &part, 1) == 5);
	REQUIRE(recvfrom(server, bytes, 5, MSG_WAITALL, NULL, NULL) == 5 && recvmsg(server, &message, MSG_WAITALL) == 5);
	int epoll = epoll_create1(0), old = epoll_create(1);
	struct epoll_event event = {.events = EPOLLIN | EPOLLOUT};
	REQUIRE(epoll >= 0 && old >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) == 0);
	REQUIRE(epoll_wait(epoll, &event, 1, 5000) == 1 && epoll_pwait(epoll, &event, 1, 5000, NULL) == 1);
	REQUIRE(shutdown(client, SHUT_WR) == 0 && read(server, bytes, 5) == 0);
	int copy = dup(client), other = fcntl(client, F_DUPFD_CLOEXEC, 0);
	REQUIRE(copy >= 0 && other >= 0 && dup2(server, copy) == copy && dup3(server, other, O_CLOEXEC) == other);
	REQUIRE(ioctl(server, FIONREAD, &value) == 0);
	int all[] = {old, epoll, copy, other, server, client, listener};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) REQUIRE(close(all[i]) == 0);
}

static void of_others(void) {
	char byte = 'x';
	int ends[2], fd = open("/dev/zero", O_RDWR);
	REQUIRE(fd >= 0 && pread(fd, &byte, 1, 0) == 1 && read(fd, &byte, 1) == 1 && lseek(fd, 0, SEEK_SET) == 0);
	REQUIRE(fcntl(fd, F_GETFL) >= 0 && close(fd) == 0 && close(fd) == -1 && errno == EBADF);
	REQUIRE(pipe(ends) == 0 && write(ends[1], &byte, 1) == 1 && splice(ends[0], NULL, ends[1], NULL, 1, SPLICE_F_NONBLOCK) < 1);
	REQUIRE(close(ends[0]) == 0 && close_range((unsigned)ends[1], (unsigned)ends[1], 0) == 0);
	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && send(ends[0], "x", 1, 0) == 1 && close(ends[0]) == 0);
	FILE *stream = fdopen(ends[1], "r");
	REQUIRE(stream && fgetc(stream) == 'x' && fclose(stream) == 0);
	sigset_t none;
	sigemptyset(&none);
	int more[] = {eventfd(0, 0), timerfd_create(CLOCK_MONOTONIC, 0), signalfd(-1, &none, 0), (int)syscall(SYS_dup, 2)};
	for (size_t i = 0; i < sizeof more / sizeof *more; i++) REQUIRE(more[i] >= 0 && syscall(SYS_close, more[i]) == 0);
}

__attribute__((constructor(101))) static void first(void) {
	of_others();
	of_sockets();
	of_others();
}

__attribute__((destructor)) static void last(void) { of_others(); }

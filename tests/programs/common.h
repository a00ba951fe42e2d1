/* Shared by the test programs: each prints a transcript that has to be the same on kernel TCP and under the preload.
 *
 * Usage of every program: PROGRAM [ADDRESS [ARGUMENT...]]   (ADDRESS: an IPv4 or IPv6 address of this host, 127.0.0.1)
 * Results are printed as values, errno names, events and relations, never as times, ports or descriptor numbers.
 * Whatever arrives over a network is waited for before it is looked at without blocking: delivery takes time. */
#ifndef COMMON_H
#define COMMON_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define WATCHDOG_SECONDS 120 /* a program that hangs ends with SIGALRM */
#define ARRIVAL_MS 20000     /* how long data, an end of file or a connection may take to arrive */
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct address {
	struct sockaddr_storage storage;
	socklen_t length;
};

static struct address local; /* ADDRESS with port 0 */
static int program_argc;
static char **program_argv;

static inline void say(const char *format, ...) {
	va_list list;
	va_start(list, format);
	vprintf(format, list);
	va_end(list);
	putchar('\n');
}

static inline void die(const char *what) {
	say("FAILED %s: %s", what, strerrorname_np(errno));
	exit(1);
}

/* For steps that are no subject of the test: ends the program when they fail. */
static inline long must(const char *what, long result) {
	if (result < 0) die(what);
	return result;
}

/* For steps that are: prints the value, or -1 and the name of the error. errno stays. */
static inline long report(const char *what, long result) {
	int error = errno;
	if (result < 0)
		say("%s: %ld %s", what, result, strerrorname_np(error));
	else
		say("%s: %ld", what, result);
	errno = error;
	return result;
}

/* The same for a call that returns a descriptor: its number stays out of the transcript. */
static inline int report_descriptor(const char *what, int fd) {
	int error = errno;
	say("%s: %s", what, fd < 0 ? strerrorname_np(error) : "ok");
	errno = error;
	return fd;
}

static inline const char *yes_no(bool value) { return value ? "yes" : "no"; }

static inline struct address parse_address(const char *text) {
	struct address parsed = {0};
	struct sockaddr_in *v4 = (struct sockaddr_in *)&parsed.storage;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&parsed.storage;
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		parsed.length = sizeof *v4;
	} else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		parsed.length = sizeof *v6;
	} else {
		fprintf(stderr, "not an address: %s\n", text);
		exit(2);
	}
	return parsed;
}

/* First call of every main. */
static inline void begin(int argc, char **argv) {
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(WATCHDOG_SECONDS);
	local = parse_address(argc > 1 ? argv[1] : "127.0.0.1");
	program_argc = argc;
	program_argv = argv;
}

/* The ARGUMENT with this number (from 1) as a number, or the default. */
static inline long argument(int index, long otherwise) {
	return program_argc > index + 1 ? strtol(program_argv[index + 1], NULL, 0) : otherwise;
}

static inline struct sockaddr *sockaddr_of(struct address *address) { return (struct sockaddr *)&address->storage; }

static inline in_port_t *port_of(struct address *address) {
	/* sin_port and sin6_port are at the same place */
	return &((struct sockaddr_in *)&address->storage)->sin_port;
}

static inline struct address name_of(int fd) {
	struct address name = {.length = sizeof name.storage};
	must("getsockname", getsockname(fd, sockaddr_of(&name), &name.length));
	return name;
}

static inline int new_socket(int flags) {
	return (int)must("socket", socket(local.storage.ss_family, SOCK_STREAM | flags, 0));
}

static inline int bind_to(int fd, struct address address) { return bind(fd, sockaddr_of(&address), address.length); }

static inline int connect_to(int fd, struct address address) { return connect(fd, sockaddr_of(&address), address.length); }

static inline int new_listener(int flags, int backlog) {
	int fd = new_socket(flags);
	must("bind", bind_to(fd, local));
	must("listen", listen(fd, backlog));
	return fd;
}

/* An address of this host where nobody listens: a port that was given out a moment ago. */
static inline struct address closed_port(void) {
	int fd = new_socket(0);
	must("bind", bind_to(fd, local));
	struct address name = name_of(fd);
	close(fd);
	return name;
}

struct pair {
	int client; /* the connecting end */
	int server; /* the accepted end */
};

static inline struct pair connect_pair(int listener) {
	struct pair made = {.client = new_socket(0)};
	must("connect", connect_to(made.client, name_of(listener)));
	made.server = (int)must("accept", accept(listener, NULL, NULL));
	return made;
}

/* A connection of this thread with itself: listen, connect, accept in that order. */
static inline struct pair new_pair(void) {
	int listener = new_listener(0, 8);
	struct pair made = connect_pair(listener);
	close(listener);
	return made;
}

static inline void close_pair(struct pair both) {
	close(both.client);
	close(both.server);
}

static inline void set_nonblocking(int fd, bool on) {
	int flags = (int)must("F_GETFL", fcntl(fd, F_GETFL));
	must("F_SETFL", fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

static inline bool is_nonblocking(int fd) { return must("F_GETFL", fcntl(fd, F_GETFL)) & O_NONBLOCK; }

static inline bool is_cloexec(int fd) { return must("F_GETFD", fcntl(fd, F_GETFD)) & FD_CLOEXEC; }

/* "IN|OUT|..." in a buffer that the caller's thread keeps until its next call. */
static inline const char *event_names(short events) {
	static const struct {
		short bit;
		const char *name;
	} names[] = {{POLLIN, "IN"},   {POLLPRI, "PRI"},	 {POLLOUT, "OUT"}, {POLLRDHUP, "RDHUP"},
		     {POLLERR, "ERR"}, {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}};
	static __thread char text[64];
	text[0] = 0;
	for (size_t i = 0; i < COUNT(names); i++)
		if (events & names[i].bit) {
			if (text[0]) strcat(text, "|");
			strcat(text, names[i].name);
		}
	return text[0] ? text : "-";
}

#define ALL_EVENTS (POLLIN | POLLPRI | POLLOUT | POLLRDHUP)

/* What poll says of one descriptor now. */
static inline short events_now(int fd, short asked) {
	struct pollfd one = {.fd = fd, .events = asked};
	must("poll", poll(&one, 1, 0));
	return one.revents;
}

/* Waits until poll reports all of `wanted`; the events that it reported then. */
static inline short wait_for(int fd, short wanted) {
	struct pollfd one = {.fd = fd, .events = ALL_EVENTS};
	for (int waited = 0; waited < ARRIVAL_MS; waited++) {
		one.revents = 0;
		if (poll(&one, 1, 0) < 0 && errno != EINTR) die("poll");
		if ((one.revents & wanted) == wanted) return one.revents;
		usleep(1000);
	}
	say("FAILED: %s did not come, there is %s", event_names(wanted), event_names(one.revents));
	exit(1);
}

/* Waits until `bytes` bytes can be peeked at, so that what follows sees all of them. */
static inline void wait_bytes(int fd, size_t bytes) {
	char *scratch = malloc(bytes);
	for (int waited = 0; waited < ARRIVAL_MS; waited++) {
		if (recv(fd, scratch, bytes, MSG_PEEK | MSG_DONTWAIT) == (ssize_t)bytes) {
			free(scratch);
			return;
		}
		usleep(1000);
	}
	say("FAILED: %zu bytes did not come", bytes);
	exit(1);
}

/* The byte at a place of a stream; `seed` tells streams apart. */
static inline unsigned char pattern_at(uint64_t offset, unsigned seed) {
	uint64_t mixed = (offset + seed) * 0x9E3779B97F4A7C15u;
	return (unsigned char)(mixed >> 56);
}

static inline void fill_pattern(void *to, size_t length, uint64_t offset, unsigned seed) {
	unsigned char *bytes = to;
	for (size_t i = 0; i < length; i++) bytes[i] = pattern_at(offset + i, seed);
}

static inline bool has_pattern(const void *from, size_t length, uint64_t offset, unsigned seed) {
	const unsigned char *bytes = from;
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != pattern_at(offset + i, seed)) return false;
	return true;
}

static inline void send_all(int fd, const void *from, size_t length) {
	const char *at = from;
	while (length) {
		ssize_t sent = send(fd, at, length, MSG_NOSIGNAL);
		must("send", sent);
		at += sent;
		length -= (size_t)sent;
	}
}

/* Bytes read: less than `length` only at the end of the stream. */
static inline size_t recv_all(int fd, void *to, size_t length) {
	size_t done = 0;
	while (done < length) {
		ssize_t got = recv(fd, (char *)to + done, length - done, 0);
		must("recv", got);
		if (!got) break;
		done += (size_t)got;
	}
	return done;
}

/* Sends `total` bytes of the pattern in pieces. */
static inline void send_pattern(int fd, uint64_t total, size_t piece, unsigned seed) {
	char *buffer = malloc(piece);
	for (uint64_t done = 0; done < total;) {
		size_t now = total - done < piece ? (size_t)(total - done) : piece;
		fill_pattern(buffer, now, done, seed);
		send_all(fd, buffer, now);
		done += now;
	}
	free(buffer);
}

/* Receives up to `total` bytes and returns how many of them, from the start, were the pattern. */
static inline uint64_t recv_pattern(int fd, uint64_t total, size_t piece, unsigned seed) {
	char *buffer = malloc(piece);
	uint64_t done = 0;
	while (done < total) {
		size_t ask = total - done < piece ? (size_t)(total - done) : piece;
		ssize_t got = recv(fd, buffer, ask, 0);
		must("recv", got);
		if (!got || !has_pattern(buffer, (size_t)got, done, seed)) break;
		done += (uint64_t)got;
	}
	free(buffer);
	return done;
}

static inline int64_t now_us(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Prints whether `ms` have passed since `start_us`, that is, whether a time-out was not cut short. */
static inline void report_not_early(const char *what, int64_t start_us, int ms) {
	say("%s: waited long enough: %s", what, yes_no(now_us() - start_us >= (int64_t)ms * 1000));
}

static inline pthread_t start_thread(void *(*body)(void *), void *context) {
	pthread_t thread;
	errno = pthread_create(&thread, NULL, body, context);
	if (errno) die("pthread_create");
	return thread;
}

static inline void sleep_ms(int ms) { usleep((useconds_t)ms * 1000); }

static inline int open_descriptors(void) {
	int count = -3; /* ., .. and the folder itself */
	DIR *folder = opendir("/proc/self/fd");
	while (folder && readdir(folder)) count++;
	if (folder) closedir(folder);
	return count;
}

/* For qsort. */
static inline int ascending(const void *a, const void *b) {
	int64_t one = *(const int64_t *)a, other = *(const int64_t *)b;
	return (one > other) - (one < other);
}

static inline int socket_error(int fd) {
	int value = 0;
	socklen_t length = sizeof value;
	must("SO_ERROR", getsockopt(fd, SOL_SOCKET, SO_ERROR, &value, &length));
	return value;
}

static inline void report_socket_error(const char *what, int fd) {
	int error = socket_error(fd);
	say("%s: SO_ERROR %s", what, error ? strerrorname_np(error) : "0");
}

#endif

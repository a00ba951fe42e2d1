/* The calls that wait, each on a socket where it has to, and a signal that comes meanwhile. */
#ifndef SIGNAL_CALLS_H
#define SIGNAL_CALLS_H
#include "fill.h"

static volatile sig_atomic_t handled;

static void handler(int number) {
	(void)number;
	handled++;
}

static inline void handle(int number, bool restart) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
	must("sigaction", sigaction(number, &action, NULL));
}

static pthread_t main_thread;
static struct pair both; /* nothing comes at the server's end, and the client's is full */
static int listener;
static char byte;

static long wait_recv(void) { return recv(both.server, &byte, 1, 0); }
static long wait_recvfrom(void) { return recvfrom(both.server, &byte, 1, 0, NULL, NULL); }
static long wait_peek(void) { return recv(both.server, &byte, 1, MSG_PEEK); }
static long wait_read(void) { return read(both.server, &byte, 1); }
static long wait_readv(void) {
	struct iovec vector = {&byte, 1};
	return readv(both.server, &vector, 1);
}
static long wait_recvmsg(void) {
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	return recvmsg(both.server, &message, 0);
}
static long wait_recvmmsg(void) {
	struct iovec vector = {&byte, 1};
	struct mmsghdr message = {.msg_hdr = {.msg_iov = &vector, .msg_iovlen = 1}};
	return recvmmsg(both.server, &message, 1, 0, NULL);
}
static long wait_accept(void) {
	int fd = accept(listener, NULL, NULL);
	if (fd >= 0) close(fd);
	return fd < 0 ? -1 : 0;
}
static long wait_accept4(void) {
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0) close(fd);
	return fd < 0 ? -1 : 0;
}
static long wait_send(void) { return send(both.client, &byte, 1, 0); }
static long wait_write(void) { return write(both.client, &byte, 1); }
static long wait_writev(void) {
	struct iovec vector = {&byte, 1};
	return writev(both.client, &vector, 1);
}
static long wait_sendmsg(void) {
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	return sendmsg(both.client, &message, 0);
}
static long wait_poll(void) {
	struct pollfd one = {.fd = both.server, .events = POLLIN};
	return poll(&one, 1, ARRIVAL_MS);
}
static long wait_ppoll(void) {
	struct pollfd one = {.fd = both.server, .events = POLLIN};
	return ppoll(&one, 1, NULL, NULL);
}
static long wait_select(void) {
	fd_set set;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	return select(both.server + 1, &set, NULL, NULL, NULL);
}
static long wait_pselect(void) {
	fd_set set;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	struct timespec limit = {.tv_sec = 20};
	return pselect(both.server + 1, &set, NULL, NULL, &limit, NULL);
}

/* What ends the wait if the signal does not. */
static inline void let_read(void) { send_all(both.client, "x", 1); }
static inline void let_write(void) { drain(both.server); }
static inline void let_accept(void) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, name_of(listener)));
	close(fd);
}

struct call {
	const char *name;
	long (*wait)(void);
	void (*release)(void);
};

static const struct call reading[] = {
	{"recv", wait_recv, let_read},	       {"recvfrom", wait_recvfrom, let_read}, {"recv MSG_PEEK", wait_peek, let_read},
	{"read", wait_read, let_read},	       {"readv", wait_readv, let_read},	      {"recvmsg", wait_recvmsg, let_read},
	{"recvmmsg", wait_recvmmsg, let_read},
};
static const struct call accepting[] = {{"accept", wait_accept, let_accept}, {"accept4", wait_accept4, let_accept}};
static const struct call writing[] = {
	{"send", wait_send, let_write}, {"write", wait_write, let_write}, {"writev", wait_writev, let_write}, {"sendmsg", wait_sendmsg, let_write}};
static const struct call polling[] = {
	{"poll", wait_poll, let_read}, {"ppoll", wait_ppoll, let_read}, {"select", wait_select, let_read}, {"pselect", wait_pselect, let_read}};

struct interruption {
	int number;
	void (*release)(void);
	bool ended;
};

static void *interrupt(void *context) {
	struct interruption *this = context;
	sleep_ms(80);
	pthread_kill(main_thread, this->number);
	sleep_ms(80);
	/* A call that has ended already leaves the next one's wait alone. */
	if (!__atomic_load_n(&this->ended, __ATOMIC_SEQ_CST)) this->release();
	return NULL;
}

static inline void during(const struct call *call, int number, const char *how) {
	struct interruption this = {number, call->release, false};
	handled = 0;
	pthread_t thread = start_thread(interrupt, &this);
	long result = call->wait();
	int error = errno;
	__atomic_store_n(&this.ended, true, __ATOMIC_SEQ_CST);
	pthread_join(thread, NULL);
	say("%s, %s: %s, handled %d", call->name, how, result < 0 ? strerrorname_np(error) : "goes on", (int)handled);
	if (call->release == let_read) {
		while (recv(both.server, &byte, 1, MSG_DONTWAIT) > 0) {}
	}
	/* The kernel tries again and again whether the peer has room, and may find some for a call that is to wait. */
	if (call->release == let_write) fill(both.client);
}

static inline void all_of(const struct call *calls, size_t count, int number, const char *how) {
	for (size_t i = 0; i < count; i++) during(&calls[i], number, how);
}

static inline void prepare(void) {
	main_thread = pthread_self();
	listener = new_listener(0, 4);
	both = connect_pair(listener);
}

#endif

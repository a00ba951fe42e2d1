/* signal(7): a handler with SA_RESTART lets accept, recv, send go on, without it they end with EINTR; poll and select end
 * with EINTR always; recv and accept with SO_RCVTIMEO set end with EINTR always (send: SO_SNDTIMEO). Case B39. */
#include "common.h"

static volatile sig_atomic_t handled;
static pthread_t main_thread;

static void handler(int number) {
	(void)number;
	handled++;
}

struct later {
	void (*release)(void); /* ends the wait if the signal does not */
};

static struct pair both;
static int listener;

static void *interrupt(void *context) {
	struct later *later = context;
	sleep_ms(150);
	pthread_kill(main_thread, SIGUSR1);
	sleep_ms(150);
	if (later->release) later->release();
	return NULL;
}

static void release_data(void) { send_all(both.client, "x", 1); }

static int extra;
static void release_accept(void) {
	extra = new_socket(0);
	must("connect", connect_to(extra, name_of(listener)));
}

static char byte;

static long wait_recv(void) { return recv(both.server, &byte, 1, 0); }
static long wait_read(void) { return read(both.server, &byte, 1); }
static long wait_recvmsg(void) {
	struct iovec vector = {&byte, 1};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	return recvmsg(both.server, &message, 0);
}
/* Larger than any room that is left. What was taken before the signal came counts, with SA_RESTART or without. */
static long wait_send(void) {
	static char block[32 << 20];
	long sent = send(both.client, block, sizeof block, 0);
	say("send took %s", sent < 0 ? "nothing" : sent < (long)sizeof block ? "a part" : "all");
	return sent < 0 ? sent : 0;
}
static long wait_accept(void) {
	int fd = accept(listener, NULL, NULL);
	if (fd < 0) return -1;
	close(fd);
	return 0;
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
	fd_set reads;
	FD_ZERO(&reads);
	FD_SET(both.server, &reads);
	return select(both.server + 1, &reads, NULL, NULL, NULL);
}

static void during(const char *what, bool restart, long (*wait)(void), void (*release)(void)) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
	sigaction(SIGUSR1, &action, NULL);
	handled = 0;
	struct later later = {release};
	pthread_t thread = start_thread(interrupt, &later);
	long result = wait();
	say("%s, %s: %ld %s, handled %d", what, restart ? "restart" : "no restart", result < 0 ? -1 : result,
	    result < 0 ? strerrorname_np(errno) : "", (int)handled);
	pthread_join(thread, NULL);
}

static void empty(void) {
	while (recv(both.server, &byte, 1, MSG_DONTWAIT) > 0) {}
}

static void both_ways(const char *what, long (*wait)(void), void (*release)(void)) {
	for (int restart = 0; restart < 2; restart++) {
		during(what, restart, wait, release);
		sleep_ms(20);
		empty();
		if (wait == wait_accept) {
			fcntl(listener, F_SETFL, O_NONBLOCK);
			int fd = accept(listener, NULL, NULL);
			if (fd >= 0) close(fd);
			fcntl(listener, F_SETFL, 0);
			close(extra);
		}
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	main_thread = pthread_self();
	listener = new_listener(0, 4);
	both = connect_pair(listener);
	both_ways("recv", wait_recv, release_data);
	both_ways("read", wait_read, release_data);
	both_ways("recvmsg", wait_recvmsg, release_data);
	both_ways("accept", wait_accept, release_accept);
	both_ways("poll", wait_poll, release_data);
	both_ways("ppoll", wait_ppoll, release_data);
	both_ways("select", wait_select, release_data);
	for (int restart = 0; restart < 2; restart++) {
		during("send", restart, wait_send, NULL);
		close_pair(both);
		both = connect_pair(listener);
	}
	struct timeval limit = {.tv_sec = 5};
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	both_ways("recv with SO_RCVTIMEO", wait_recv, release_data);
	both_ways("accept with SO_RCVTIMEO", wait_accept, release_accept);
	return 0;
}

/* Four workers accept on one inherited listener, in accept, or where it does not block after poll or epoll; one is killed, the others go
 * on. Each worker answers with the number of bytes that it has got. close(2): "If fd is the last file descriptor referring to the
 * underlying open file description [...], the resources associated with the open file description are freed": a worker's end or close of
 * the listener is nobody else's. Case B23 (a, d). */
#include "deferred.h"
#include <sys/epoll.h>

enum { WORKERS = 4, CLIENTS = 24 };
enum accepting { BLOCKING, AFTER_POLL, AFTER_EPOLL, ACCEPTINGS };

static const char *const names[] = {"accept blocks", "poll, then accept", "epoll, then accept"};

static volatile sig_atomic_t over;

static void end(int number) {
	(void)number;
	over = 1;
}

/* One request: a length, and so many bytes; the answer: how many of these were right. */
static void answer(int fd) {
	uint32_t length = 0;
	if (recv_all(fd, &length, sizeof length) != sizeof length) return (void)say("FAILED: a request without a length");
	uint32_t right = (uint32_t)recv_pattern(fd, length, 9000, 5);
	send_all(fd, &right, sizeof right);
}

static int accept_one(int listener, int set, enum accepting way) {
	for (;;) {
		struct pollfd one = {.fd = listener, .events = POLLIN};
		struct epoll_event event;
		if (over) return -1;
		if (way == AFTER_POLL) poll(&one, 1, 100);
		if (way == AFTER_EPOLL) epoll_wait(set, &event, 1, 100);
		int fd = accept(listener, NULL, NULL);
		if (fd >= 0) return fd;
		if (errno != EAGAIN && errno != EINTR) die("accept");
	}
}

static void work(int listener, enum accepting way) {
	struct sigaction action = {.sa_handler = end}; /* no SA_RESTART: accept ends */
	sigaction(SIGTERM, &action, NULL);
	int set = -1;
	if (way == AFTER_EPOLL) {
		struct epoll_event event = {.events = EPOLLIN};
		set = (int)must("epoll_create1", epoll_create1(0));
		must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
	}
	for (int fd; (fd = accept_one(listener, set, way)) >= 0; close(fd)) answer(fd);
}

static bool request(struct address address, uint32_t length) {
	int fd = new_socket(0);
	uint32_t right = 0;
	must("connect", connect_to(fd, address));
	send_all(fd, &length, sizeof length);
	send_pattern(fd, length, 7000, 5);
	bool good = recv_all(fd, &right, sizeof right) == sizeof right && right == length;
	close(fd);
	return good;
}

static int requests(struct address address) {
	int good = 0;
	for (int i = 0; i < CLIENTS; i++) good += request(address, i % 4 == 3 ? 1000000 : (uint32_t)(1 + i * 100));
	return good;
}

/* A signal that comes before accept sleeps ends it not: again, until the worker has gone. */
static void stop(struct child worker) {
	siginfo_t info = {0};
	while (waitid(P_PID, (id_t)worker.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0) {
		kill(worker.pid, SIGTERM);
		sleep_ms(5);
	}
	finish_child("worker", worker);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (enum accepting way = BLOCKING; way < ACCEPTINGS; way++) {
		int listener = new_listener(way == BLOCKING ? 0 : SOCK_NONBLOCK, 32);
		struct address address = name_of(listener);
		struct child workers[WORKERS];
		for (int i = 0; i < WORKERS; i++)
			if (begin_child(&workers[i])) {
				work(listener, way);
				end_child();
			}
		say("%s: %d of %d", names[way], requests(address), CLIENTS);
		kill(workers[1].pid, SIGKILL);
		finish_child("killed worker", workers[1]);
		say("one worker less: %d of %d", requests(address), CLIENTS);
		stop(workers[0]);
		say("two less: %d of %d", requests(address), CLIENTS);
		close(listener);
		say("the parent has closed its listener: %d of %d", requests(address), CLIENTS);
		stop(workers[2]);
		stop(workers[3]);
		int fd = new_socket(0);
		report("all gone: connect", connect_to(fd, address));
		close(fd);
	}
	return 0;
}

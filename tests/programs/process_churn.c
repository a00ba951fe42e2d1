/* fork in a process whose threads are busy with sockets all the time: whatever lock one of them holds, and whatever it is about to do, the
 * child's own sockets work. CHILDREN children by default; also of another thread, of a child, and of a signal handler. */
#include "process.h"
#include <sys/epoll.h>

#define THREADS 8

static int listener;
static volatile bool over, closes;
static struct address address;

static void *churn(void *context) {
	unsigned number = (unsigned)(uintptr_t)context;
	int set = (int)must("epoll_create1", epoll_create1(0));
	for (unsigned round = number; !over; round++) {
		int fd = new_socket(round & 1 ? SOCK_NONBLOCK : 0);
		struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
		if (connect_to(fd, address) && errno != EINPROGRESS) die("connect");
		must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
		struct pollfd one = {.fd = fd, .events = POLLOUT};
		must("poll", poll(&one, 1, ARRIVAL_MS));
		char byte = 'x';
		if (send(fd, &byte, 1, MSG_NOSIGNAL) == 1) must("epoll_wait", epoll_wait(set, &event, 1, ARRIVAL_MS));
		int copy = (int)must("dup", dup(fd));
		close(fd);
		recv(copy, &byte, 1, MSG_DONTWAIT);
		close(copy);
		/* The first calls of a process are about something else than the later ones; and other programs share the machine. */
		usleep(3000);
	}
	close(set);
	return NULL;
}

static void *serve(void *unused) {
	(void)unused;
	while (!closes) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0) continue;
		char byte;
		if (recv(fd, &byte, 1, 0) == 1) send(fd, &byte, 1, MSG_NOSIGNAL);
		close(fd);
	}
	return NULL;
}

/* In a child: a socket of its own, opened, used and closed. */
static void use_one(void) {
	signal(SIGALRM, SIG_DFL);
	alarm(20);
	bool works = own_sockets_work();
	alarm(0);
	_exit(works ? 0 : 1);
}

static int good, bad;

static void wait_for_child(pid_t child) {
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status))
		bad++;
	else
		good++;
}

static void fork_many(int children) {
	good = bad = 0;
	for (int i = 0; i < children; i++) {
		pid_t child = fork();
		if (child == 0) use_one();
		wait_for_child(child);
	}
}

static void *fork_in_thread(void *context) {
	fork_many(*(int *)context);
	return NULL;
}

static void nested(int children) {
	good = bad = 0;
	for (int i = 0; i < children; i++) {
		pid_t child = fork();
		if (child == 0) {
			struct pair own = new_pair();
			pid_t grandchild = fork();
			if (grandchild == 0) use_one();
			wait_for_child(grandchild);
			_exit(bad || !moves(own, 4));
		}
		wait_for_child(child);
	}
}

static volatile pid_t forked_by_handler;

static void handler(int signal) {
	(void)signal;
	int error = errno;
	pid_t child = fork();
	if (child == 0) _exit(close(listener) ? 1 : 0);
	forked_by_handler = child;
	errno = error;
}

static void round_trip(struct pair own, char byte) {
	char back = 0;
	send_all(own.client, &byte, 1);
	if (recv_all(own.server, &back, 1) != 1 || back != byte) die("a round trip");
}

/* The handler comes while this thread is anywhere in a round trip. (Not in malloc, which fork waits for in a process with threads: all that a
 * connection needs is there after a while.) */
static void in_handlers(int children) {
	struct pair own = new_pair();
	for (int i = 0; i < 1000; i++) round_trip(own, (char)i);
	good = bad = 0;
	for (int i = 0; i < children; i++) {
		forked_by_handler = 0;
		struct itimerval soon = {.it_value.tv_usec = 50 + 37 * i % 400};
		struct sigaction alarms = {.sa_handler = handler, .sa_flags = SA_RESTART};
		sigaction(SIGALRM, &alarms, NULL);
		setitimer(ITIMER_REAL, &soon, NULL);
		while (!forked_by_handler) round_trip(own, (char)i);
		wait_for_child(forked_by_handler);
	}
	close_pair(own);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int children = (int)argument(1, 300), few = children / 10;
	listener = new_listener(0, 64);
	address = name_of(listener);
	pthread_t threads[THREADS], server = start_thread(serve, NULL);
	for (uintptr_t i = 0; i < THREADS; i++) threads[i] = start_thread(churn, (void *)i);
	fork_many(children);
	say("by the main thread: %d of %d", good, children);
	pthread_t other = start_thread(fork_in_thread, &few);
	pthread_join(other, NULL);
	say("by another thread: %d of %d", good, few);
	nested(few);
	say("by children: %d of %d", good, few);
	in_handlers(few);
	alarm(WATCHDOG_SECONDS);
	say("by a signal handler: %d of %d", good, few);
	over = true;
	for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
	closes = true;
	shutdown(listener, SHUT_RDWR);
	pthread_join(server, NULL);
	return bad != 0;
}

/* A server that serves its clients itself, and forks for other errands (a snapshot, say); one whose children serve; and one that does neither
 * for a while. All clients are served. What went which way the counters say: see tests/processes.rs. */
#include "process.h"
#include <sys/epoll.h>

#define CLIENTS 10

static int listener, set;

static void *connect_as_client(void *context) {
	must("connect", connect_to(*(int *)context, name_of(listener)));
	return NULL;
}

/* One client after the other, by this process. */
static void serve_clients(const char *what) {
	int good = 0;
	for (int i = 0; i < CLIENTS; i++) {
		struct pair both = {.client = new_socket(0)};
		pthread_t client = start_thread(connect_as_client, &both.client);
		struct epoll_event event;
		if (epoll_wait(set, &event, 1, ARRIVAL_MS) != 1) die("epoll_wait");
		both.server = (int)must("accept", accept(listener, NULL, NULL));
		pthread_join(client, NULL);
		good += moves(both, (unsigned)i);
		close_pair(both);
	}
	say("%s: %d of %d", what, good, CLIENTS);
}

static int go_on[2];

/* Some errand that has nothing to do with sockets, until the parent lets it go. */
static void errand(void *unused) {
	(void)unused;
	close(go_on[1]);
	close(listener);
	say("the errand: %zd", read(go_on[0], &(char){0}, 1));
}

/* Serves clients that come to the parent's listener, until the parent lets it go. */
static void serve_in_child(void *unused) {
	(void)unused;
	close(go_on[1]);
	for (;;) {
		struct pollfd two[] = {{.fd = listener, .events = POLLIN}, {.fd = go_on[0], .events = POLLIN}};
		must("poll", poll(two, 2, -1));
		if (!(two[0].revents & POLLIN)) return;
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		char bytes[100];
		send_all(fd, bytes, recv_all(fd, bytes, sizeof bytes));
		close(fd);
	}
}

static void ask_children(const char *what) {
	int good = 0;
	for (int i = 0; i < CLIENTS; i++) {
		int fd = new_socket(0);
		must("connect", connect_to(fd, name_of(listener)));
		send_pattern(fd, 100, 100, 4);
		good += recv_pattern(fd, 100, 100, 4) == 100;
		close(fd);
	}
	say("%s: %d of %d", what, good, CLIENTS);
}

static pid_t start(void (*work)(void *)) {
	must("pipe", pipe(go_on));
	pid_t child = child_of(work, NULL);
	close(go_on[0]);
	return child;
}

static void stop(const char *what, pid_t child) {
	close(go_on[1]);
	ended(what, child);
}

static void listen_anew(void) {
	if (listener > 0) close(listener);
	if (set > 0) close(set);
	listener = new_listener(0, 32);
	set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listen_anew();
	/* Nobody knows yet who serves: it may be the child. */
	pid_t child = start(errand);
	serve_clients("a listener that has served nobody before the fork");
	stop("errand", child);
	listen_anew();
	serve_clients("before");
	child = start(errand);
	serve_clients("during an errand of a child");
	pid_t other = fork();
	if (other == 0) _exit(0);
	ended("other", other);
	serve_clients("during two of them");
	stop("errand", child);
	serve_clients("after it");
	/* And now a child serves. */
	child = start(serve_in_child);
	ask_children("clients of a child");
	stop("server", child);
	serve_clients("by the parent again");
	/* Children alone serve, and the parent idles. */
	listen_anew();
	child = start(serve_in_child);
	ask_children("clients of a child of an idle parent");
	stop("server", child);
	return 0;
}

/* A listening socket that a program has from another one by exec: execve(2), "By default, file descriptors remain open across an
 * execve()". It accepts there in whichever way it waits. Then the first program becomes one that accepts, too.
 *
 * exec_listener ADDRESS: listens, and for each way starts "exec_listener ADDRESS serve NUMBER WAY". */
#include "common.h"
#include <sys/epoll.h>
#include <sys/wait.h>

enum { BYTES = 200000 };

static const char *const ways[] = {"accept", "accept4", "nonblocking", "timed", "poll", "ppoll", "select", "epoll", "edge", "shared"};

static struct address target;

/* Who connects before the server waits is the kernel's. */
static void wait_until_main_sleeps(void) {
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
	for (int seen = 0, looks = 0; seen < 30 && looks < ARRIVAL_MS; looks++) {
		int fd = (int)must("open", open(path, O_RDONLY));
		ssize_t length = must("read", read(fd, text, sizeof text - 1));
		close(fd);
		text[length] = 0;
		const char *state = strrchr(text, ')');
		seen = state && state[2] == 'S' ? seen + 1 : 0;
		sleep_ms(1);
	}
}

static void *client(void *context) {
	(void)context;
	wait_until_main_sleeps();
	int fd = new_socket(0);
	must("connect", connect_to(fd, target));
	send_pattern(fd, BYTES, 7000, 3);
	must("shutdown", shutdown(fd, SHUT_WR));
	say("  the client has received %s", recv_pattern(fd, BYTES, 9000, 4) == BYTES ? "all" : "less");
	close(fd);
	return NULL;
}

static void wait_in_epoll(int listener, uint32_t events) {
	int set = (int)must("epoll_create1", epoll_create1(EPOLL_CLOEXEC));
	struct epoll_event event = {.events = events, .data.u64 = 77};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
	memset(&event, 0, sizeof event);
	int found = (int)must("epoll_wait", epoll_wait(set, &event, 1, ARRIVAL_MS));
	say("  epoll: %d, %s, %u", found, event.events == EPOLLIN ? "IN" : "others", (unsigned)event.data.u64);
	close(set);
}

static void wait_on(int listener, const char *way) {
	struct pollfd one = {.fd = listener, .events = POLLIN};
	struct timespec time = {.tv_sec = ARRIVAL_MS / 1000};
	bool nonblocking = !strcmp(way, "nonblocking");
	if (nonblocking || !strcmp(way, "poll")) report("  poll", poll(&one, 1, ARRIVAL_MS));
	if (!strcmp(way, "ppoll")) report("  ppoll", ppoll(&one, 1, &time, NULL));
	if (one.revents) say("  events: %s", event_names(one.revents));
	if (!strcmp(way, "select")) {
		fd_set set;
		FD_ZERO(&set);
		FD_SET(listener, &set);
		struct timeval limit = {.tv_sec = ARRIVAL_MS / 1000};
		say("  select: %ld", must("select", select(listener + 1, &set, NULL, NULL, &limit)));
	}
	if (!strcmp(way, "epoll")) wait_in_epoll(listener, EPOLLIN);
	if (!strcmp(way, "edge")) wait_in_epoll(listener, EPOLLIN | EPOLLET);
}

static void serve(int listener, const char *way) {
	int yes = 0;
	socklen_t length = sizeof yes;
	must("SO_ACCEPTCONN", getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &yes, &length));
	target = name_of(listener);
	say("%s: the listener listens: %s, blocks: %s", way, yes_no(yes), yes_no(!is_nonblocking(listener)));
	if (!strcmp(way, "timed")) {
		/* First nobody comes. */
		struct timeval limit = {.tv_usec = 50000};
		must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
		report_descriptor("  accept in vain", accept(listener, NULL, NULL));
		limit.tv_sec = ARRIVAL_MS / 1000;
		must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit));
	}
	if (!strcmp(way, "nonblocking")) {
		set_nonblocking(listener, true);
		report_descriptor("  accept in vain", accept(listener, NULL, NULL));
	}
	int other = !strcmp(way, "shared") ? (int)must("dup", dup(listener)) : listener;
	pthread_t thread = start_thread(client, NULL);
	wait_on(other, way);
	bool four = !strcmp(way, "accept4");
	struct address peer = {.length = sizeof peer.storage};
	int fd = four ? accept4(other, sockaddr_of(&peer), &peer.length, SOCK_CLOEXEC | SOCK_NONBLOCK)
		      : accept(other, sockaddr_of(&peer), &peer.length);
	must("accept", fd);
	say("  accepted: blocks %s, close on exec %s, family as the listener's %s", yes_no(!is_nonblocking(fd)), yes_no(is_cloexec(fd)),
	    yes_no(peer.storage.ss_family == target.storage.ss_family));
	set_nonblocking(fd, false);
	say("  the server has received %s", recv_pattern(fd, BYTES, 11000, 3) == BYTES ? "all" : "less");
	send_pattern(fd, BYTES, 5000, 4);
	close(fd);
	pthread_join(thread, NULL);
	set_nonblocking(listener, false);
	struct timeval none = {0};
	must("SO_RCVTIMEO", setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &none, sizeof none));
}

static void become(int listener, const char *way) {
	char number[16];
	snprintf(number, sizeof number, "%d", listener);
	char *arguments[] = {program_argv[0], program_argc > 1 ? program_argv[1] : "127.0.0.1", "serve", number, (char *)way, NULL};
	execv("/proc/self/exe", arguments);
	die("execv");
}

int main(int argc, char **argv) {
	begin(argc, argv);
	if (argc > 4 && !strcmp(argv[2], "serve")) return serve((int)argument(2, -1), argv[4]), 0;

	int listener = new_listener(0, 8);
	for (size_t i = 0; i < COUNT(ways); i++) {
		int gate[2], status;
		must("pipe", pipe(gate));
		pid_t child = (pid_t)must("fork", fork());
		if (!child) {
			char byte;
			must("read", read(gate[0], &byte, 1));
			become(listener, ways[i]);
		}
		must("write", write(gate[1], "g", 1));
		must("waitpid", waitpid(child, &status, 0));
		if (status) say("FAILED: the child's status is %d", status);
		close(gate[0]);
		close(gate[1]);
	}
	say("the first one");
	become(listener, "accept");
}

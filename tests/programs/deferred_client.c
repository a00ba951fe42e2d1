/* Clients that fork: the child talks on what its parent has connected, the parent keeps its copy or closes it, becomes a daemon, or forks
 * a child for each connection. And clients that wait before they call: a nonblocking connect, an epoll set that the socket is in before it
 * connects. fork(2), daemon(3), connect(2), epoll(7). */
#include "deferred.h"
#include <sys/epoll.h>

enum keeping { CLOSES, KEEPS, KEEPINGS };

static void child_talks(enum style style, enum keeping keeping) {
	struct server server = start_server(style, 1, echo, 5000);
	int fd = connect_to_server(&server);
	struct child child;
	if (begin_child(&child)) {
		say("%lu", through_echo(fd, 2000000, 30000));
		ask_once("and once more", fd, 10);
		must("shutdown", shutdown(fd, SHUT_WR));
		char byte;
		report("the end", recv(fd, &byte, 1, 0));
		end_child();
	}
	if (keeping == CLOSES) close(fd);
	finish_child("child", child);
	finish_child("server", server.child);
	if (keeping == KEEPS) close(fd);
}

/* The grandchild talks, when its parent has gone. */
static void daemon_talks(enum style style) {
	struct server server = start_server(style, 1, echo, 5000);
	int fd = connect_to_server(&server), done[2];
	must("pipe", pipe(done));
	struct child child;
	if (begin_child(&child)) {
		if (must("daemon", daemon(1, 1)) == 0) say("%lu", through_echo(fd, 300000, 30000));
		must("write", write(done[1], "d", 1));
		end_child();
	}
	close(fd);
	char byte;
	must("read", read(done[0], &byte, 1));
	finish_child("daemon", child);
	finish_child("server", server.child);
}

/* Children of one client, each with a connection of its own that the parent has made, all at once. */
static void each_its_own(enum style style) {
	enum { MANY = 5 };
	struct server server = start_server(style, MANY, echo, 5000);
	struct child children[MANY];
	int fds[MANY];
	for (int i = 0; i < MANY; i++) fds[i] = connect_to_server(&server);
	for (int i = 0; i < MANY; i++)
		if (begin_child(&children[i])) {
			for (int j = 0; j < MANY; j++)
				if (j != i) close(fds[j]);
			say("%d: %lu", i, through_echo(fds[i], 100000, 10000));
			end_child();
		}
	for (int i = 0; i < MANY; i++) close(fds[i]);
	for (int i = 0; i < MANY; i++) finish_child("child", children[i]);
	finish_child("server", server.child);
}

/* The child has it and ends without a word; the parent is the one who talks. */
static void child_ends(enum style style, bool closes) {
	struct server server = start_server(style, 1, echo, 5000);
	int fd = connect_to_server(&server);
	struct child child;
	if (begin_child(&child)) {
		if (closes) close(fd);
		end_child();
	}
	finish_child("child", child);
	say("the parent: %lu", through_echo(fd, 300000, 20000));
	close(fd);
	finish_child("server", server.child);
}

static void *wait_out(void *context) {
	struct epoll_event event = {0};
	int found = (int)must("epoll_wait", epoll_wait(*(int *)context, &event, 1, ARRIVAL_MS));
	say("connected: %s", found ? event_names((short)event.events) : "none");
	return NULL;
}

/* The set has the socket before it connects, and a thread may wait in it. */
static void in_a_set(enum style style, uint32_t how, bool thread_waits) {
	struct server server = start_server(style, 1, echo, 5000);
	int fd = new_socket(SOCK_NONBLOCK), set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLOUT | how};
	pthread_t thread = 0;
	/* a socket that is not connected shows EPOLLOUT | EPOLLHUP: added before it connects, but waited for afterwards */
	must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	if (connect_to(fd, server.address) < 0 && errno != EINPROGRESS) die("connect");
	if (thread_waits) {
		thread = start_thread(wait_out, &set);
		pthread_join(thread, NULL);
	} else {
		wait_out(&set);
	}
	report_socket_error("connected", fd);
	event.events = EPOLLIN | how;
	must("EPOLL_CTL_MOD", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
	report("silence", epoll_wait(set, &event, 1, 30));
	wait_for(fd, POLLOUT);
	send_all(fd, "abc", 3);
	report("data", epoll_wait(set, &event, 1, ARRIVAL_MS));
	say("data: %s", event_names((short)event.events));
	wait_bytes(fd, 3);
	char text[4] = "";
	report("recv", recv(fd, text, 3, 0));
	set_nonblocking(fd, false);
	say("then: %s, %lu", text, through_echo(fd, 300000, 10000));
	report("the set is still in order", epoll_wait(set, &event, 1, 0) >= 0);
	must("shutdown", shutdown(fd, SHUT_WR));
	event.events = EPOLLIN | EPOLLRDHUP | how;
	must("EPOLL_CTL_MOD", epoll_ctl(set, EPOLL_CTL_MOD, fd, &event));
	wait_for(fd, POLLRDHUP);
	report("the end", epoll_wait(set, &event, 1, ARRIVAL_MS));
	say("the end: %s", event_names((short)event.events));
	close(fd);
	close(set);
	finish_child("server", server.child);
}

/* Connected without blocking, looked at by poll and SO_ERROR, as event loops do. */
static void nonblocking(enum style style) {
	struct server server = start_server(style, 1, echo, 5000);
	int fd = new_socket(SOCK_NONBLOCK);
	if (connect_to(fd, server.address) < 0 && errno != EINPROGRESS) die("connect");
	struct pollfd one = {.fd = fd, .events = POLLOUT};
	report("poll", poll(&one, 1, ARRIVAL_MS));
	report_socket_error("connected", fd);
	report("again", connect_to(fd, server.address));
	char byte;
	report("nothing there", recv(fd, &byte, 1, 0));
	set_nonblocking(fd, false);
	say("%lu", through_echo(fd, 300000, 10000));
	close(fd);
	finish_child("server", server.child);
}

/* Connected with a time-out, as Python and others do it: without blocking, and a wait for the outcome alone. The child talks. */
static void outcome_then_child(enum style style, bool by_select) {
	struct server server = start_server(style, 1, echo, 5000);
	int fd = new_socket(SOCK_NONBLOCK);
	if (connect_to(fd, server.address) < 0 && errno != EINPROGRESS) die("connect");
	struct pollfd one = {.fd = fd, .events = POLLOUT | POLLERR};
	fd_set out;
	FD_ZERO(&out);
	FD_SET(fd, &out);
	struct timeval time = {.tv_sec = 5};
	report("the outcome", by_select ? select(fd + 1, NULL, &out, NULL, &time) : poll(&one, 1, ARRIVAL_MS));
	say("writable: %s", by_select ? yes_no(FD_ISSET(fd, &out)) : event_names(one.revents));
	report_socket_error("connected", fd);
	set_nonblocking(fd, false);
	struct child child;
	if (begin_child(&child)) {
		say("%lu", through_echo(fd, 300000, 10000));
		end_child();
	}
	finish_child("child", child);
	close(fd);
	finish_child("server", server.child);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (enum style style = OWN; style < STYLES; style++) {
		for (enum keeping keeping = CLOSES; keeping < KEEPINGS; keeping++) {
			say("%s: the child talks, the parent %s", style_names[style], keeping == CLOSES ? "has closed it" : "keeps it");
			child_talks(style, keeping);
		}
		say("%s: a daemon", style_names[style]);
		daemon_talks(style);
		if (style == FORKING) {
			say("%s: children with a connection each", style_names[style]);
			each_its_own(style);
		}
		for (int closes = 0; closes < 2; closes++) {
			say("%s: a child that %s", style_names[style], closes ? "closes it" : "ends with it");
			child_ends(style, closes);
		}
		for (int how = 0; how < 4; how++) {
			say("%s: in a set, %s%s", style_names[style], how & 1 ? "EPOLLET" : "level", how & 2 ? ", a thread waits" : "");
			in_a_set(style, how & 1 ? EPOLLET : 0, how & 2);
		}
		say("%s: nonblocking", style_names[style]);
		nonblocking(style);
		for (int by_select = 0; by_select < 2; by_select++) {
			say("%s: a child that talks after %s", style_names[style], by_select ? "select" : "poll");
			outcome_then_child(style, by_select);
		}
	}
	return 0;
}

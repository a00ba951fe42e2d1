/* B66: many connections that are answered at once, in sets at both ends: none of them waits while others are served. */
#include "epoll.h"
#include <sys/wait.h>

#define CONNECTIONS 6
#define PATIENCE_US 1000000

static void serve(int port, uint32_t flags) {
	int listener = new_listener(SOCK_NONBLOCK, 64), set = new_set();
	struct address name = name_of(listener);
	must("write", write(port, &name, sizeof name));
	add(set, listener, EPOLLIN, 0);
	for (;;) {
		struct epoll_event events[MOST];
		int found = (int)must("epoll_wait", epoll_wait(set, events, MOST, -1));
		for (int i = 0; i < found; i++) {
			int fd = (int)events[i].data.u64;
			char buffer[256];
			if (fd == 0) {
				int made = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				if (made < 0) continue;
				struct epoll_event event = {.events = flags, .data.u64 = (uint64_t)made};
				must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, made, &event));
				continue;
			}
			ssize_t got = recv(fd, buffer, sizeof buffer, 0);
			if (got == 0) close(fd);
			if (got > 0) send_all(fd, buffer, (size_t)got);
		}
	}
}

/* A server process, made before this one has a socket, and its address. */
static pid_t start(uint32_t flags, struct address *name) {
	int ends[2];
	must("pipe", pipe(ends));
	pid_t server = fork();
	if (server == 0) serve(ends[1], flags);
	must("read", read(ends[0], name, sizeof *name));
	return server;
}

static void run(const char *what, pid_t server, struct address name) {
	int set = new_set(), fds[CONNECTIONS];
	int64_t asked[CONNECTIONS], longest = 0;
	long answers[CONNECTIONS] = {0};
	for (int i = 0; i < CONNECTIONS; i++) {
		fds[i] = new_socket(SOCK_NONBLOCK);
		if (connect_to(fds[i], name) < 0 && errno != EINPROGRESS) die("connect");
		add(set, fds[i], EPOLLIN | EPOLLOUT, (char)i);
		asked[i] = 0;
	}
	int64_t start = now_us(), now;
	do {
		struct epoll_event events[MOST];
		int found = (int)must("epoll_wait", epoll_wait(set, events, MOST, 100));
		now = now_us();
		for (int i = 0; i < found; i++) {
			int which = (int)events[i].data.u64;
			char text[64] = "a question of some length";
			if (events[i].events & EPOLLIN) {
				if (recv(fds[which], text, sizeof text, 0) <= 0) die("recv");
				answers[which]++;
			} else if (asked[which])
				continue;
			else
				modify(set, fds[which], EPOLLIN, (char)which);
			send_all(fds[which], text, 40);
			asked[which] = now;
		}
		for (int i = 0; i < CONNECTIONS; i++)
			if (asked[i] && now - asked[i] > longest) longest = now - asked[i];
	} while (now - start < 1500000);
	bool all = true;
	for (int i = 0; i < CONNECTIONS; i++) all &= answers[i] > 100;
	say("%s: all were answered: %s, none late: %s", what, yes_no(all), yes_no(longest < PATIENCE_US));
	if (argument(1, 0)) {
		printf("longest %ld us:", (long)longest);
		for (int i = 0; i < CONNECTIONS; i++) printf(" %ld", answers[i]);
		printf("\n");
	}
	for (int i = 0; i < CONNECTIONS; i++) close(fds[i]);
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	close(set);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct address level, edge;
	pid_t level_server = start(EPOLLIN, &level), edge_server = start(EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &edge);
	run("level", level_server, level);
	run("edge", edge_server, edge);
	return 0;
}

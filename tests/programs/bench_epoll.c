/* Round trips with one of many connections in an epoll set: bench_epoll ADDRESS IDLE [SECONDS] [ACTIVE] [BYTES] prints them a second.
 * What an idle member costs is the difference between few and many. */
#include "epoll.h"
#include <sys/resource.h>

static void serve(int port) {
	int listener = new_listener(SOCK_NONBLOCK, 1024), set = new_set();
	static char buffer[65536];
	struct address name = name_of(listener);
	must("write", write(port, &name, sizeof name));
	add(set, listener, EPOLLIN, 0);
	for (;;) {
		struct epoll_event events[64];
		int found = (int)must("epoll_wait", epoll_wait(set, events, 64, -1));
		for (int i = 0; i < found; i++) {
			int fd = (int)events[i].data.u64;
			if (fd == 0) {
				int made = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
				if (made < 0) continue;
				struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)made};
				must("EPOLL_CTL_ADD", epoll_ctl(set, EPOLL_CTL_ADD, made, &event));
				continue;
			}
			ssize_t got = recv(fd, buffer, sizeof buffer, 0);
			if (got <= 0 && !(got < 0 && errno == EAGAIN)) close(fd);
			if (got > 0) send_all(fd, buffer, (size_t)got);
		}
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	long idle = argument(1, 10), seconds = argument(2, 1), active = argument(3, 1), bytes = argument(4, 64);
	struct rlimit limit;
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = limit.rlim_max;
	setrlimit(RLIMIT_NOFILE, &limit);
	int ends[2];
	must("pipe", pipe(ends));
	pid_t server = fork();
	if (server == 0) serve(ends[1]);
	struct address name;
	must("read", read(ends[0], &name, sizeof name));
	int fds[64];
	int one = 1;
	for (long i = 0; i < idle + active; i++) {
		int fd = new_socket(0);
		must("connect", connect_to(fd, name));
		must("TCP_NODELAY", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one));
		char byte = 'x';
		send_all(fd, &byte, 1);
		recv_all(fd, &byte, 1);
		if (i < active && i < (long)COUNT(fds)) fds[i] = fd;
	}
	static char block[65536];
	long rounds = 0;
	int64_t start = now_us(), end = start + seconds * 1000000;
	do {
		for (long i = 0; i < active; i++) send_all(fds[i], block, (size_t)bytes);
		for (long i = 0; i < active; i++) recv_all(fds[i], block, (size_t)bytes);
		rounds += active;
	} while (now_us() < end);
	printf("%.0f\n", (double)rounds * 1e6 / (double)(now_us() - start));
	kill(server, SIGKILL);
	return 0;
}

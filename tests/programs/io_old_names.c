/* __read, __write, __send, __connect, __poll and their kind, which programs import that were linked with parts of older C libraries. Case B14. */
#include "common.h"

ssize_t __read(int, void *, size_t);
ssize_t __write(int, const void *, size_t);
ssize_t __send(int, const void *, size_t, int);
int __connect(int, const struct sockaddr *, socklen_t);
int __close(int);
int __dup2(int, int);
int __fcntl(int, int, ...);
off_t __lseek(int, off_t, int);
ssize_t __pread64(int, void *, size_t, off64_t);
ssize_t __pwrite64(int, const void *, size_t, off64_t);
int __poll(struct pollfd *, nfds_t, int);
int __select(int, fd_set *, fd_set *, fd_set *, struct timeval *);
int __open(const char *, int, ...);
int __pipe(int *);

int main(int argc, char **argv) {
	begin(argc, argv);
	char text[8] = "";
	int listener = new_listener(0, 4);
	struct address name = name_of(listener);
	struct pair both = {.client = new_socket(0)};
	report("connect", __connect(both.client, sockaddr_of(&name), name.length));
	both.server = (int)must("accept", accept(listener, NULL, NULL));
	report("write", __write(both.client, "ab", 2));
	report("send", __send(both.client, "cd", 2, MSG_NOSIGNAL));
	wait_bytes(both.server, 4);
	struct pollfd one = {.fd = both.server, .events = POLLIN};
	fd_set set;
	FD_ZERO(&set);
	FD_SET(both.server, &set);
	report("poll", __poll(&one, 1, -1));
	report("select", __select(both.server + 1, &set, NULL, NULL, NULL));
	report("read", __read(both.server, text, 8));
	say("%s", text);
	report("lseek", __lseek(both.server, 0, SEEK_CUR));
	report("pread", __pread64(both.server, text, 1, 0));
	report("pwrite", __pwrite64(both.server, text, 1, 0));
	report("O_NONBLOCK", __fcntl(both.server, F_SETFL, O_NONBLOCK));
	report("read", __read(both.server, text, 8));
	report("dup2", __dup2(both.client, 200));
	report_descriptor("F_DUPFD", __fcntl(both.client, F_DUPFD, 210));
	report("close", __close(both.client));
	report("write to a copy", __write(200, "e", 1));
	report("close", __close(200));
	report("close", __close(210));
	int file = __open("/dev/zero", O_RDONLY), ends[2];
	say("the number came back: %s", yes_no(file == both.client));
	text[0] = 1;
	report("read of a file", __read(file, text, 1));
	say("%d", text[0]);
	report("pipe", __pipe(ends));
	report("peer: data", __read(both.server, text, 8));
	wait_for(both.server, POLLRDHUP);
	report("peer: the end", __read(both.server, text, 8));
	return 0;
}

/* Every transfer call against every other: read, readv, recv, recvfrom, recvmsg take what write, writev, send, sendto,
 * sendmsg gave. Then the calls that make no sense on a stream: lseek, pread, pwrite, preadv, pwritev: ESPIPE. */
#include "common.h"

static ssize_t give(int kind, int fd, char *text, size_t length) {
	struct iovec vector = {text, length};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	switch (kind) {
	case 0: return write(fd, text, length);
	case 1: return writev(fd, &vector, 1);
	case 2: return send(fd, text, length, 0);
	case 3: return sendto(fd, text, length, 0, NULL, 0);
	default: return sendmsg(fd, &message, 0);
	}
}

static ssize_t take(int kind, int fd, char *text, size_t length) {
	struct iovec vector = {text, length};
	struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
	switch (kind) {
	case 0: return read(fd, text, length);
	case 1: return readv(fd, &vector, 1);
	case 2: return recv(fd, text, length, 0);
	case 3: return recvfrom(fd, text, length, 0, NULL, NULL);
	default: return recvmsg(fd, &message, 0);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	static const char *givers[] = {"write", "writev", "send", "sendto", "sendmsg"};
	static const char *takers[] = {"read", "readv", "recv", "recvfrom", "recvmsg"};
	struct pair both = new_pair();
	for (int from = 0; from < 5; from++)
		for (int to = 0; to < 5; to++) {
			char out[200], in[300];
			fill_pattern(out, sizeof out, 0, (unsigned)(from * 5 + to));
			ssize_t sent = give(from, both.client, out, sizeof out);
			wait_bytes(both.server, sizeof out);
			ssize_t got = take(to, both.server, in, sizeof in);
			say("%s, %s: %zd, %zd, equal %s", givers[from], takers[to], sent, got,
			    yes_no(!memcmp(out, in, sizeof out)));
		}
	char byte = 0;
	struct iovec vector = {&byte, 1};
	report("lseek", lseek(both.client, 0, SEEK_CUR));
	report("pread", pread(both.client, &byte, 1, 0));
	report("pwrite", pwrite(both.client, &byte, 1, 0));
	report("preadv", preadv(both.client, &vector, 1, 0));
	report("pwritev", pwritev(both.client, &vector, 1, 0));
	report("fsync", fsync(both.client));
	report("ftruncate", ftruncate(both.client, 0));
	close(both.client);
	for (int to = 0; to < 5; to++) report(takers[to], take(to, both.server, &byte, 1));
	return 0;
}

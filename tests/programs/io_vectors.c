/* readv(2), writev(2), sendmsg(2), recvmsg(2): every vector is used, in order; zero-length vectors anywhere do not matter;
 * more than IOV_MAX vectors are EINVAL (readv) or EMSGSIZE (sendmsg), a negative total EINVAL. */
#include "common.h"

enum { MANY = 600, ROOM = 64 * 1024 };

static char source[ROOM], sink[ROOM];

static size_t cut(char *base, struct iovec *vectors, size_t count, unsigned seed) {
	size_t total = 0;
	for (size_t i = 0; i < count; i++) {
		size_t length = (i * 37 + seed * 11) % 97; /* 0 to 96 */
		if (i % 7 == 3) length = 0;
		vectors[i] = (struct iovec){base + total, length};
		total += length;
	}
	return total;
}

static ssize_t by_msg(int fd, struct iovec *vectors, size_t count, bool sending) {
	struct msghdr message = {.msg_iov = vectors, .msg_iovlen = count};
	return sending ? sendmsg(fd, &message, 0) : recvmsg(fd, &message, 0);
}

static void exchange(struct pair both, size_t out, size_t in, bool msg_out, bool msg_in) {
	struct iovec to[MANY], from[MANY];
	size_t total = cut(source, to, out, 1), room = cut(sink, from, in, 5), done = 0, all;
	memset(sink, 0, sizeof sink);
	fill_pattern(source, total, 0, (unsigned)total);
	ssize_t sent = msg_out ? by_msg(both.client, to, out, true) : writev(both.client, to, (int)out);
	say("%s %zu vectors: %zd of %zu bytes", msg_out ? "sendmsg" : "writev", out, sent, total);
	wait_bytes(both.server, total);
	ssize_t got = msg_in ? by_msg(both.server, from, in, false) : readv(both.server, from, (int)in);
	all = total < room ? total : room;
	say("%s %zu vectors: %zd of %zu bytes, room %zu, equal %s", msg_in ? "recvmsg" : "readv", in, got, all, room,
	    yes_no(has_pattern(sink, all, 0, (unsigned)total)));
	for (done = all; done < total; done += (size_t)got)
		got = must("recv", recv(both.server, sink, total - done, 0));
}

static void limits(struct pair both) {
	static struct iovec vectors[IOV_MAX + 1];
	static char byte = 'l';
	for (size_t i = 0; i < COUNT(vectors); i++) vectors[i] = (struct iovec){&byte, 1};
	report("writev of IOV_MAX", writev(both.client, vectors, IOV_MAX));
	report("writev of IOV_MAX + 1", writev(both.client, vectors, IOV_MAX + 1));
	report("writev of -1", writev(both.client, vectors, -1));
	report("sendmsg of IOV_MAX + 1", by_msg(both.client, vectors, IOV_MAX + 1, true));
	wait_bytes(both.server, IOV_MAX);
	report("readv of IOV_MAX + 1", readv(both.server, vectors, IOV_MAX + 1));
	report("recvmsg of IOV_MAX + 1", by_msg(both.server, vectors, IOV_MAX + 1, false));
	report("readv of IOV_MAX", readv(both.server, vectors, IOV_MAX));
	struct iovec huge[2] = {{&byte, SSIZE_MAX}, {&byte, 2}};
	report("writev of too many bytes", writev(both.client, huge, 2));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	static const size_t counts[] = {1, 2, 3, 16, 17, 64, MANY};
	for (size_t i = 0; i < COUNT(counts); i++)
		for (int way = 0; way < 4; way++)
			exchange(both, counts[i], counts[COUNT(counts) - 1 - i], way & 1, way & 2);
	exchange(both, 5, 5, false, false);
	limits(both);
	return 0;
}

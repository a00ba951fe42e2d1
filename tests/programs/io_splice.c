/* splice(2) between a socket and a pipe, as proxies and file servers use it: what moves, what stays, and EAGAIN, EINVAL, ESPIPE where the
 * kernel says so. tee(2), vmsplice(2), copy_file_range(2) and sendfile(2) from a socket are not for sockets. */
#include "common.h"
#include <sys/sendfile.h>

#define MANY (3 << 20)

static struct pair both;
static int ends[2];
static char text[1 << 17];

static void expect(const char *what, int fd, const char *wanted) {
	memset(text, 0, 64);
	ssize_t got = read(fd, text, sizeof text);
	say("  %s: %s: %s", what, got == (ssize_t)strlen(wanted) ? "all" : "not all", text);
}

static int queued(int fd) {
	int count = -1;
	must("FIONREAD", ioctl(fd, FIONREAD, &count));
	return count;
}

static void from_socket(void) {
	say("-- socket to pipe");
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	report("part of it", splice(both.server, NULL, ends[1], NULL, 4, 0));
	expect("pipe", ends[0], "0123");
	report("the rest", splice(both.server, NULL, ends[1], NULL, 100, SPLICE_F_MOVE | SPLICE_F_MORE));
	expect("pipe", ends[0], "456789");
	report("nothing wanted", splice(both.server, NULL, ends[1], NULL, 0, 0));
	set_nonblocking(both.server, true);
	report("nothing there, nonblocking socket", splice(both.server, NULL, ends[1], NULL, 100, 0));
	report("nothing there, both nonblocking", splice(both.server, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
	set_nonblocking(both.server, false);
	struct timeval soon = {.tv_usec = 30 * 1000};
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
	report("nothing there, until the time-out", splice(both.server, NULL, ends[1], NULL, 100, 0));
	report("the same, SPLICE_F_NONBLOCK", splice(both.server, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
	soon.tv_usec = 0;
	must("SO_RCVTIMEO", setsockopt(both.server, SOL_SOCKET, SO_RCVTIMEO, &soon, sizeof soon));
}

static void *later(void *context) {
	(void)context;
	sleep_ms(50);
	send_all(both.client, "later", 5);
	return NULL;
}

static void waits(void) {
	say("-- waits");
	pthread_t sender = start_thread(later, NULL);
	report("for data", splice(both.server, NULL, ends[1], NULL, 100, 0));
	pthread_join(sender, NULL);
	expect("pipe", ends[0], "later");
}

static void full_pipe(void) {
	say("-- a full pipe");
	set_nonblocking(ends[1], true);
	memset(text, 'f', sizeof text);
	long filled = 0, some;
	while ((some = write(ends[1], text, sizeof text)) > 0) filled += some;
	set_nonblocking(ends[1], false);
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	report("SPLICE_F_NONBLOCK", splice(both.server, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
	set_nonblocking(ends[1], true);
	report("nonblocking pipe", splice(both.server, NULL, ends[1], NULL, 100, 0));
	set_nonblocking(ends[1], false);
	say("still in the socket: %d", queued(both.server));
	while (filled > 0) filled -= must("read", read(ends[0], text, sizeof text));
	report("room again", splice(both.server, NULL, ends[1], NULL, 100, SPLICE_F_NONBLOCK));
	expect("pipe", ends[0], "0123456789");
}

static void to_socket(void) {
	say("-- pipe to socket");
	must("write", write(ends[1], "abcdefghij", 10));
	report("part of it", splice(ends[0], NULL, both.client, NULL, 4, SPLICE_F_MORE));
	expect("socket", both.server, "abcd");
	report("the rest", splice(ends[0], NULL, both.client, NULL, 100, SPLICE_F_MOVE));
	expect("socket", both.server, "efghij");
	report("nothing wanted", splice(ends[0], NULL, both.client, NULL, 0, 0));
	report("empty pipe, SPLICE_F_NONBLOCK", splice(ends[0], NULL, both.client, NULL, 100, SPLICE_F_NONBLOCK));
	set_nonblocking(ends[0], true);
	report("empty nonblocking pipe", splice(ends[0], NULL, both.client, NULL, 100, 0));
	set_nonblocking(ends[0], false);
}

static void *drain(void *context) {
	uint64_t *got = context;
	*got = recv_pattern(both.server, MANY, sizeof text, 7);
	return NULL;
}

static void *fill(void *context) {
	(void)context;
	for (uint64_t done = 0; done < MANY;) {
		char part[50000];
		fill_pattern(part, sizeof part, done, 7);
		ssize_t put = write(ends[1], part, MANY - done < sizeof part ? MANY - done : sizeof part);
		done += (uint64_t)must("write", put);
	}
	return NULL;
}

/* socket to pipe to socket, with the peer's data and a pipe that fills up */
static void through(void) {
	say("-- much");
	uint64_t got = 0, moved = 0;
	pthread_t reader = start_thread(drain, &got), writer = start_thread(fill, NULL);
	while (moved < MANY) {
		ssize_t now = splice(ends[0], NULL, both.client, NULL, MANY, 0);
		moved += (uint64_t)must("splice", now);
	}
	pthread_join(reader, NULL);
	pthread_join(writer, NULL);
	say("pipe to socket: %llu, equal %llu", (unsigned long long)moved, (unsigned long long)got);
}

static void *give(void *context) {
	(void)context;
	send_pattern(both.client, MANY, sizeof text, 8);
	return NULL;
}

static void *take(void *context) {
	uint64_t *good = context;
	static char part[70000];
	ssize_t some = 1;
	while (*good < MANY && some > 0) {
		some = must("read", read(ends[0], part, sizeof part));
		if (!has_pattern(part, (size_t)some, *good, 8)) break;
		*good += (uint64_t)some;
	}
	return NULL;
}

static void out_of(void) {
	uint64_t good = 0, moved = 0;
	pthread_t writer = start_thread(give, NULL), reader = start_thread(take, &good);
	while (moved < MANY) moved += (uint64_t)must("splice", splice(both.server, NULL, ends[1], NULL, MANY, 0));
	pthread_join(writer, NULL);
	pthread_join(reader, NULL);
	say("socket to pipe: %llu, equal %llu", (unsigned long long)moved, (unsigned long long)good);
}

static void backpressure(void) {
	say("-- a full socket");
	set_nonblocking(both.client, true);
	uint64_t in = 0, out = 0;
	static char part[4096];
	for (;;) {
		fill_pattern(part, sizeof part, in, 9);
		in += (uint64_t)must("write", write(ends[1], part, sizeof part));
		ssize_t now = splice(ends[0], NULL, both.client, NULL, sizeof part, SPLICE_F_NONBLOCK);
		if (now < 0) break;
		out += (uint64_t)now;
	}
	report_descriptor("full", -1);
	say("what did not go stays in the pipe: %s", yes_no((uint64_t)queued(ends[0]) == in - out));
	set_nonblocking(both.client, false);
	say("what went is there: %s", yes_no(recv_pattern(both.server, out, sizeof text, 9) == out));
	while (out < in) out += (uint64_t)must("splice", splice(ends[0], NULL, both.client, NULL, sizeof part, 0));
	say("pipe is empty: %s", yes_no(queued(ends[0]) == 0));
	uint64_t left = 0;
	while (left < in && recv(both.server, text, sizeof text, MSG_DONTWAIT) > 0) left++;
}

static void refused(void) {
	say("-- refused");
	int file = (int)must("open", open("/dev/zero", O_RDWR)), other[2];
	off64_t offset = 0;
	must("pipe", pipe(other));
	must("write", write(other[1], "x", 1));
	report("socket to file", splice(both.server, NULL, file, NULL, 10, 0));
	report("file to socket", splice(file, NULL, both.client, NULL, 10, 0));
	report("socket to socket", splice(both.server, NULL, both.client, NULL, 10, 0));
	report("socket with an offset to pipe", splice(both.server, &offset, ends[1], NULL, 10, 0));
	report("pipe to socket with an offset", splice(ends[0], NULL, both.client, &offset, 10, 0));
	report("socket to pipe with an offset", splice(both.server, NULL, ends[1], &offset, 10, SPLICE_F_NONBLOCK));
	report("pipe with an offset to socket", splice(ends[0], &offset, both.client, NULL, 10, SPLICE_F_NONBLOCK));
	report("unknown flag", splice(both.server, NULL, ends[1], NULL, 10, 0x100));
	report("unknown flag, nothing", splice(both.server, NULL, ends[1], NULL, 0, 0x100));
	report("to the reading end", splice(both.server, NULL, ends[0], NULL, 10, SPLICE_F_NONBLOCK));
	report("from the writing end", splice(other[1], NULL, both.client, NULL, 10, SPLICE_F_NONBLOCK));
	report("to a closed number", splice(both.server, NULL, 999, NULL, 10, SPLICE_F_NONBLOCK));
	report("from a closed number", splice(999, NULL, both.client, NULL, 10, SPLICE_F_NONBLOCK));
	report("tee from a socket", tee(both.server, ends[1], 10, SPLICE_F_NONBLOCK));
	report("tee to a socket", tee(other[0], both.client, 10, SPLICE_F_NONBLOCK));
	struct iovec vector = {text, 10};
	report("vmsplice", vmsplice(both.client, &vector, 1, SPLICE_F_NONBLOCK));
	report("copy_file_range from a socket", copy_file_range(both.server, NULL, file, NULL, 10, 0));
	report("copy_file_range to a socket", copy_file_range(file, NULL, both.client, NULL, 10, 0));
	report("sendfile from a socket to a file", sendfile(file, both.server, NULL, 10));
	report("sendfile from a socket to a socket", sendfile(both.client, both.server, NULL, 10));
	report("sendfile from a socket, offset", sendfile(file, both.server, &offset, 10));
	report("sendfile from a socket to a socket, offset", sendfile(both.client, both.server, &offset, 10));
	report("sendfile from a pipe", sendfile(both.client, other[0], NULL, 1));
	report("sendfile from a pipe, offset", sendfile(both.client, other[0], &offset, 1));
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	report("sendfile from a socket to a pipe", sendfile(ends[1], both.server, NULL, 4));
	expect("pipe", ends[0], "0123");
	report("sendfile from a socket to a pipe, offset", sendfile(ends[1], both.server, &offset, 4));
	set_nonblocking(ends[1], true);
	report("sendfile from a socket to a nonblocking pipe", sendfile(ends[1], both.server, NULL, 40));
	expect("pipe", ends[0], "456789");
	set_nonblocking(ends[1], false);
	close(file);
	close(other[0]);
	close(other[1]);
}

static void at_the_end(void) {
	say("-- the end");
	must("shutdown", shutdown(both.client, SHUT_WR));
	wait_for(both.server, POLLRDHUP);
	report("socket's end of file", splice(both.server, NULL, ends[1], NULL, 10, 0));
	report("after the own end, nothing in the pipe", splice(ends[0], NULL, both.client, NULL, 10, SPLICE_F_NONBLOCK));
	must("write", write(ends[1], "x", 1));
	report("after the own end", splice(ends[0], NULL, both.client, NULL, 10, 0));
	say("pipe has: %d", queued(ends[0]));
	report("the other way", splice(ends[0], NULL, both.server, NULL, 10, 0));
	expect("socket", both.client, "x");
	close(ends[1]);
	report("pipe's end of file", splice(ends[0], NULL, both.server, NULL, 10, 0));
	must("pipe", pipe(ends));
	close(ends[0]);
	send_all(both.server, "lost", 4);
	wait_bytes(both.client, 4);
	report("a pipe that nobody reads", splice(both.client, NULL, ends[1], NULL, 10, 0));
	expect("still in the socket", both.client, "lost");
	close_pair(both);
	report("a closed socket", splice(both.client, NULL, ends[1], NULL, 10, 0));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	both = new_pair();
	must("pipe", pipe(ends));
	from_socket();
	waits();
	full_pipe();
	to_socket();
	through();
	out_of();
	backpressure();
	refused();
	at_the_end();
	return 0;
}

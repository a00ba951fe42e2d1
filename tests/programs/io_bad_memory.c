/* send(2), recv(2) and their kind with memory that the program does not have: "EFAULT An invalid user space address was specified", unless
 * the socket cannot do it anyhow. Lengths that are an error taken for a number: "Linux will transfer at most 0x7ffff000 bytes" (read(2)). */
// flags: -Wno-nonnull -Wno-stringop-overflow
#include "common.h"
#include <sys/mman.h>

#define PAGE 4096
#define MANY (256 * PAGE)

static struct pair both;
static char text[64];

/* Memory that ends at something which cannot be read. */
static char *memory(size_t length) {
	char *start = mmap(NULL, length + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (start == MAP_FAILED || mprotect(start + length, PAGE, PROT_NONE)) die("mmap");
	return start;
}

/* How much goes out before the end of the memory is up to the kernel's buffers. */
static void report_part(const char *what, ssize_t sent) {
	if (sent <= 0)
		report(what, sent);
	else
		say("%s: not more than there is: %s", what, yes_no(sent <= MANY));
	char *into = malloc(MANY);
	ssize_t got = recv_all(both.server, into, sent > 0 ? (size_t)sent : 0);
	say("  equal: %s", yes_no(got == (sent > 0 ? sent : 0) && has_pattern(into, (size_t)got, 0, 5)));
	free(into);
}

static void huge_lengths(char *start) {
	struct iovec one = {start, SSIZE_MAX}, two[2] = {{start, 1}, {start, SIZE_MAX}};
	report_part("send SIZE_MAX", send(both.client, start, SIZE_MAX, MSG_DONTWAIT));
	report_part("send INT_MAX", send(both.client, start, INT_MAX, MSG_DONTWAIT));
	report_part("sendto UINT_MAX", sendto(both.client, start, UINT_MAX, MSG_DONTWAIT, NULL, 0));
	set_nonblocking(both.client, true);
	report_part("write 4 GiB", write(both.client, start, (size_t)UINT_MAX + 1));
	report_part("write SSIZE_MAX", write(both.client, start, SSIZE_MAX));
	report_part("write SIZE_MAX", write(both.client, start, SIZE_MAX));
	report_part("writev SSIZE_MAX", writev(both.client, &one, 1));
	one.iov_len = (size_t)1 << 40;
	report_part("writev much", writev(both.client, &one, 1));
	one.iov_len = SIZE_MAX;
	report_part("writev SIZE_MAX", writev(both.client, &one, 1));
	report_part("writev 1 + SIZE_MAX", writev(both.client, two, 2));
	set_nonblocking(both.client, false);
	struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1};
	one.iov_len = SSIZE_MAX;
	report_part("sendmsg SSIZE_MAX", sendmsg(both.client, &message, MSG_DONTWAIT));
}

static void huge_reads(char *start) {
	report("recv SIZE_MAX of nothing", recv(both.server, start, SIZE_MAX, MSG_DONTWAIT));
	report("recv INT_MAX of nothing", recv(both.server, start, INT_MAX, MSG_DONTWAIT));
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	report("read SIZE_MAX", read(both.server, start, SIZE_MAX));
	report("read SSIZE_MAX", read(both.server, start, SSIZE_MAX));
	report("read 4 GiB", read(both.server, start, (size_t)UINT_MAX + 1));
	say("%.10s", start);
	send_all(both.client, "abcdefghij", 10);
	wait_bytes(both.server, 10);
	report("recv SIZE_MAX, PEEK", recv(both.server, start, SIZE_MAX, MSG_PEEK));
	report("recv SIZE_MAX", recv(both.server, start, SIZE_MAX, 0));
	say("%.10s", start);
}

static void bad_sends(const char *state) {
	struct iovec vectors[2] = {{NULL, 6}, {text, 10}}, none = {NULL, 0};
	struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
	say("-- sending %s", state);
	report("send NULL", send(both.client, NULL, 10, MSG_DONTWAIT));
	report("send NULL, nothing", send(both.client, NULL, 0, MSG_DONTWAIT));
	report("send near NULL", send(both.client, (char *)8, 10, MSG_DONTWAIT));
	report("send -1", send(both.client, (char *)-1, 10, MSG_DONTWAIT));
	report("write NULL", write(both.client, NULL, 10));
	report("write NULL, nothing", write(both.client, NULL, 0));
	report("writev NULL, something", writev(both.client, vectors, 2));
	report("writev none", writev(both.client, &none, 1));
	report("writev of no array", writev(both.client, NULL, 2));
	report("sendmsg NULL, something", sendmsg(both.client, &message, 0));
	report("sendmsg NULL", sendmsg(both.client, NULL, 0));
	message.msg_iov = NULL;
	report("sendmsg of no array", sendmsg(both.client, &message, 0));
	report("sendmmsg NULL", sendmmsg(both.client, NULL, 1, 0));
	report("sendto a bad address", sendto(both.client, text, 1, MSG_DONTWAIT, (struct sockaddr *)8, 16));
}

static void bad_reads(const char *state) {
	struct iovec vectors[2] = {{text, 4}, {NULL, 6}};
	struct msghdr message = {.msg_iov = vectors, .msg_iovlen = 2};
	say("-- reading %s", state);
	report("recv NULL", recv(both.server, NULL, 10, MSG_DONTWAIT));
	report("recv NULL, PEEK", recv(both.server, NULL, 10, MSG_DONTWAIT | MSG_PEEK));
	report("recv NULL, WAITALL", recv(both.server, NULL, 10, MSG_DONTWAIT | MSG_WAITALL));
	report("recv NULL, OOB", recv(both.server, NULL, 10, MSG_DONTWAIT | MSG_OOB));
	report("recv near NULL", recv(both.server, (char *)8, 10, MSG_DONTWAIT));
	report("recv -1", recv(both.server, (char *)-1, 10, MSG_DONTWAIT));
	report("recv -1, TRUNC", recv(both.server, (char *)-1, 10, MSG_DONTWAIT | MSG_TRUNC));
	report("read NULL", read(both.server, NULL, 10));
	report("readv something, NULL", readv(both.server, vectors, 2));
	report("readv of no array", readv(both.server, NULL, 2));
	report("recvmsg something, NULL", recvmsg(both.server, &message, 0));
	report("recvmsg NULL", recvmsg(both.server, NULL, 0));
	report("recvmmsg NULL", recvmmsg(both.server, NULL, 1, 0, NULL));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	both = new_pair();
	char *little = memory(PAGE), *much = memory(MANY);
	fill_pattern(much, MANY, 0, 5);
	say("-- a page");
	huge_lengths(little);
	huge_reads(little);
	say("-- more");
	huge_lengths(much);

	bad_sends("over a connection");
	set_nonblocking(both.server, true);
	bad_reads("nothing");
	send_all(both.client, "0123456789", 10);
	wait_bytes(both.server, 10);
	bad_reads("something");
	report("all is still there", recv(both.server, text, 64, 0));
	say("%.10s", text);
	must("shutdown", shutdown(both.client, SHUT_WR));
	wait_for(both.server, POLLRDHUP);
	bad_sends("after the own end");
	bad_reads("after the peer's end");
	return 0;
}

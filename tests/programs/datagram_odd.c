/* Calls that name memory which is not there, datagrams in pieces, filters, and addresses that change: whatever the kernel says and does. */
#include "datagram.h"
#include <linux/filter.h>
#include <sys/mman.h>

static void *volatile nowhere = NULL;
static int one, two;
static struct address name_one, name_two;

/* Nothing must have been sent. */
static void nothing_came(const char *what) {
	send_to(one, "mark", name_two);
	report_next(what, two, name_one);
}

static void bad_senders(void) {
	char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (page == MAP_FAILED || munmap(page + 4096, 4096)) die("mmap");
	struct iovec both[] = {{page, 4}, {nowhere, 4}};
	struct msghdr message = {.msg_iov = both, .msg_iovlen = 2};
	must("connect", connect_to(one, name_two));
	report("send from nowhere", send(one, nowhere, 10, 0));
	nothing_came("after it");
	report("write from nowhere", write(one, nowhere, 10));
	report("sendto from nowhere", sendto(one, nowhere, 10, 0, NULL, 0));
	report("writev with a part from nowhere", writev(one, both, 2));
	report("sendmsg with one", sendmsg(one, &message, 0));
	report("send of more than there is", send(one, page + 4000, (size_t)argument(1, -1), 0));
	report("send of 2 GiB", send(one, page, (size_t)1 << 31, 0));
	nothing_came("after all of them");
	munmap(page, 4096);
}

static void bad_receivers(void) {
	char text[50], control[64];
	struct address source = {.length = sizeof source.storage};
	struct iovec part = {text, sizeof text};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = NULL, .msg_controllen = sizeof control};
	send_to(one, "a", name_two);
	wait_for(two, POLLIN);
	report("recvmsg, no control data and room for it", recvmsg(two, &message, 0));
	say("of control data: %zu", (size_t)message.msg_controllen);
	send_to(one, "bc", name_two);
	wait_for(two, POLLIN);
	report("recv with MSG_OOB", recv(two, text, sizeof text, MSG_OOB));
	send_to(one, "def", name_two);
	wait_for(two, POLLIN);
	report("recv to nowhere", recv(two, nowhere, sizeof text, 0));
	report_nothing("it is lost", two);
	send_to(one, "ghij", name_two);
	wait_for(two, POLLIN);
	report("read to nowhere", read(two, nowhere, sizeof text));
	send_to(one, "", name_two);
	wait_for(two, POLLIN);
	report("of an empty one", read(two, nowhere, sizeof text));
	send_to(one, "klmno", name_two);
	wait_for(two, POLLIN);
	report("a name without a length", recvfrom(two, text, sizeof text, 0, sockaddr_of(&source), NULL));
	report_nothing("after that", two);
	send_to(one, "pq", name_two);
	wait_for(two, POLLIN);
	source.length = (socklen_t)-1;
	report("a name of negative length", recvfrom(two, text, sizeof text, 0, sockaddr_of(&source), &source.length));
	report_nothing("after that", two);
}

static void pieces(void) {
	report("send with MSG_MORE", send(one, "head ", 5, MSG_MORE));
	report("send", send(one, "tail", 4, 0));
	report_next("in one", two, name_one);
	struct iovec part = {"first ", 6};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	report("sendmsg with MSG_MORE", sendmsg(one, &message, MSG_MORE));
	report("write", write(one, "second ", 7));
	report_next("the rest", two, name_one);
	report("send", send(one, "alone", 5, 0));
	report_next("and one", two, name_one);
}

static void filters(void) {
	int filtered = bound_socket(0);
	struct address name = name_of(filtered);
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {1, &none};
	must("filter", setsockopt(filtered, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
	int sender = datagram_socket(0);
	send_to(sender, "x", name);
	sleep_ms(50);
	report_nothing("through a filter that lets nothing through", filtered);
	must("detach", setsockopt(filtered, SOL_SOCKET, SO_DETACH_FILTER, &program, sizeof(int)));
	close(filtered);
	close(sender);
}

static void addresses(void) {
	int socket_one = bound_socket(0);
	must("connect", connect_to(socket_one, name_two));
	struct sockaddr unspecified = {.sa_family = AF_UNSPEC};
	must("dissolve", connect(socket_one, &unspecified, sizeof unspecified));
	send_to(socket_one, "again", name_two);
	wait_for(two, POLLIN);
	char text[50];
	struct address source = {.length = sizeof source.storage};
	report("from whom", recvfrom(two, text, sizeof text, 0, sockaddr_of(&source), &source.length));
	struct address now = name_of(socket_one), without = now, expected = local;
	*port_of(&without) = 0;
	*port_of(&expected) = 0;
	say("it has a port: %s, and its address: %s", yes_no(*port_of(&now) != 0), yes_no(!memcmp(&without.storage, &expected.storage, local.length)));
	close(socket_one);
}

/* SO_REUSEADDR that is taken back after bind: the more specific socket has the datagrams, or the latest. */
static void taken_back(void) {
	int first = datagram_socket(0), second = datagram_socket(0);
	must("reuse", setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
	must("reuse", setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)));
	must("bind", bind_to(first, local));
	struct address name = name_of(first);
	must("bind", bind_to(second, name));
	must("no reuse", setsockopt(first, SOL_SOCKET, SO_REUSEADDR, &(int){0}, sizeof(int)));
	must("no reuse", setsockopt(second, SOL_SOCKET, SO_REUSEADDR, &(int){0}, sizeof(int)));
	int sender = datagram_socket(0);
	for (int i = 0; i < 3; i++) send_to(sender, "x", name);
	sleep_ms(50);
	int counts[2] = {0};
	char text[4];
	while (recv(first, text, sizeof text, MSG_DONTWAIT) >= 0) counts[0]++;
	while (recv(second, text, sizeof text, MSG_DONTWAIT) >= 0) counts[1]++;
	say("of two sockets of one address: %d and %d", counts[0], counts[1]);
	close(first);
	close(second);
	close(sender);
}

/* splice(2) takes a datagram as recv(2) does. */
static void into_a_pipe(void) {
	int ends[2];
	must("pipe", pipe(ends));
	send_to(one, "to a pipe", name_two);
	send_to(one, "cut off", name_two);
	wait_for(two, POLLIN);
	char text[50];
	report("splice", splice(two, NULL, ends[1], NULL, 1000, 0));
	wait_for(two, POLLIN);
	report("splice of three bytes", splice(two, NULL, ends[1], NULL, 3, 0));
	report_nothing("the rest", two);
	long got = report("read from the pipe", read(ends[0], text, sizeof text));
	say("\"%.*s\"", (int)got, text);
	close(ends[0]);
	close(ends[1]);
}

/* Structures where no memory of a program's is. */
static void low_pointers(const char *kind, int from, int to) {
	void *volatile low = (void *)8;
	char text[4];
	struct address source = {.length = sizeof source.storage};
	struct iovec part = {text, sizeof text};
	struct msghdr vectors = {.msg_iov = low, .msg_iovlen = 1}, names = {.msg_name = low, .msg_namelen = 16, .msg_iov = &part, .msg_iovlen = 1};
	say("%s", kind);
	report("send", send(from, low, 4, 0));
	report("writev", writev(from, low, 2));
	report("sendmsg", sendmsg(from, low, 0));
	report("its elements", sendmsg(from, &vectors, 0));
	report("sendmmsg", sendmmsg(from, low, 1, 0));
	report("recvmsg", recvmsg(to, low, MSG_DONTWAIT));
	report("recvmmsg", recvmmsg(to, low, 1, MSG_DONTWAIT, NULL));
	report("readv", readv(to, low, 2));
	report("getsockname", getsockname(to, low, &source.length));
	report("its length", getsockname(to, sockaddr_of(&source), low));
	report("connect", connect(to, low, 16));
	report("its elements", recvmsg(to, &vectors, MSG_DONTWAIT));
	if (from == one) report("its name", sendmsg(from, &names, 0));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	one = named_socket(&name_one);
	two = named_socket(&name_two);
	bad_senders();
	bad_receivers();
	pieces();
	filters();
	addresses();
	taken_back();
	into_a_pipe();
	low_pointers("datagrams", one, two);
	struct pair both = new_pair();
	low_pointers("a stream", both.client, both.server);
	return 0;
}

/* Every call that moves datagrams, with what is special about them: their bounds, their sources, what does not fit. */
#include "datagram.h"

static int one, two;
static struct address name_one, name_two;

static void by_address(void) {
	report("sendto", send_to(one, "first", name_two));
	report_next("recvfrom", two, name_one);
	struct address source = {.length = 3};
	send_to(one, "short name", name_two);
	wait_for(two, POLLIN);
	char text[50];
	report("room for three bytes of the name", recvfrom(two, text, sizeof text, 0, sockaddr_of(&source), &source.length));
	say("its length: %s", yes_no(source.length == name_one.length));
	send_to(one, "no name", name_two);
	wait_for(two, POLLIN);
	report("recvfrom without a name", recvfrom(two, text, sizeof text, 0, NULL, NULL));
	report("send without a destination", send(one, "x", 1, 0));
	report("write without one", write(one, "x", 1));
	struct address nowhere = name_two;
	*port_of(&nowhere) = 0;
	report("to port 0", send_to(one, "x", nowhere));
	report("to a name that is too short", sendto(one, "x", 1, 0, sockaddr_of(&name_two), 4));
	struct address strange = name_two;
	strange.storage.ss_family = AF_UNIX;
	report("to another family", send_to(one, "x", strange));
}

static void bounds(void) {
	char text[50];
	send_to(one, "one", name_two);
	send_to(one, "", name_two);
	send_to(one, "three", name_two);
	wait_for(two, POLLIN);
	report("read", read(two, text, sizeof text));
	wait_for(two, POLLIN);
	report("an empty one", read(two, text, sizeof text));
	wait_for(two, POLLIN);
	report("read of nothing", read(two, text, 0));
	report("recv of nothing loses it", recv(two, text, 0, MSG_DONTWAIT));
	report_nothing("after that", two);
	send_to(one, "longer than the buffer", name_two);
	wait_for(two, POLLIN);
	report("recv of six bytes", recv(two, text, 6, 0));
	say("they are \"%.6s\"", text);
	report_nothing("the rest is lost", two);
}

static void looks(void) {
	char text[50] = {0};
	int count = -1;
	report("FIONREAD of none", ioctl(two, FIONREAD, &count));
	say("count %d", count);
	send_to(one, "twelve bytes", name_two);
	send_to(one, "second", name_two);
	wait_for(two, POLLIN);
	report("FIONREAD", ioctl(two, FIONREAD, &count));
	say("count %d: the first one's", count);
	report("peek", recv(two, text, 6, MSG_PEEK));
	report("peek with MSG_TRUNC", recv(two, text, 6, MSG_PEEK | MSG_TRUNC));
	report("MSG_TRUNC", recv(two, text, 6, MSG_TRUNC));
	say("\"%.6s\"", text);
	report("MSG_WAITALL", recv(two, text, sizeof text, MSG_WAITALL));
	report("nothing left", recv(two, text, sizeof text, MSG_DONTWAIT));
	report("SIOCOUTQ", ioctl(one, TIOCOUTQ, &count));
	say("count %d", count);
}

static void messages(void) {
	char first[5] = {0}, second[50] = {0};
	struct address source = {0};
	struct iovec from[] = {{"gath", 4}, {"", 0}, {"ered ", 5}, {"bytes", 5}};
	struct msghdr message = {.msg_name = &name_two.storage, .msg_namelen = name_two.length, .msg_iov = from, .msg_iovlen = 4};
	report("sendmsg", sendmsg(one, &message, 0));
	wait_for(two, POLLIN);
	struct iovec into[] = {{first, 4}, {second, 49}};
	struct msghdr got = {.msg_name = &source.storage, .msg_namelen = sizeof source.storage, .msg_iov = into, .msg_iovlen = 2};
	report("recvmsg", recvmsg(two, &got, 0));
	source.length = got.msg_namelen;
	say("\"%s\" \"%s\" flags %x control %zu from the sender: %s", first, second, (unsigned)got.msg_flags, (size_t)got.msg_controllen,
	    yes_no(same_address(source, name_one)));
	sendmsg(one, &message, 0);
	wait_for(two, POLLIN);
	struct msghdr small = {.msg_iov = into, .msg_iovlen = 1};
	report("recvmsg of four bytes", recvmsg(two, &small, 0));
	say("cut: %s", yes_no(small.msg_flags & MSG_TRUNC));
	report("writev without a destination", writev(one, from, 4));
	message.msg_iovlen = 0;
	report("sendmsg of nothing", sendmsg(one, &message, 0));
	wait_for(two, POLLIN);
	report("recvmsg of it", recvmsg(two, &got, 0));
}

static void many(void) {
	enum { N = 20 };
	struct mmsghdr out[N] = {0}, in[N] = {0};
	struct iovec from[N], into[N];
	char texts[N][20], room[N][20];
	for (int i = 0; i < N; i++) {
		from[i] = (struct iovec){texts[i], (size_t)sprintf(texts[i], "message %d", i)};
		into[i] = (struct iovec){room[i], sizeof room[i]};
		out[i].msg_hdr = (struct msghdr){.msg_name = &name_two.storage, .msg_namelen = name_two.length, .msg_iov = from + i, .msg_iovlen = 1};
		in[i].msg_hdr = (struct msghdr){.msg_iov = into + i, .msg_iovlen = 1};
	}
	report("sendmmsg", sendmmsg(one, out, N, 0));
	report("lengths", (long)out[N - 1].msg_len);
	report("recvmmsg of five", recvmmsg(two, in, 5, 0, NULL));
	report("and of the rest", recvmmsg(two, in, N, MSG_WAITFORONE, NULL));
	say("the last is \"%.*s\"", (int)in[14].msg_len, room[14]);
	report("nothing", recvmmsg(two, in, N, MSG_DONTWAIT, NULL));
	struct timespec limit = {0, 1000000};
	sendmmsg(one, out, 2, 0);
	wait_for(two, POLLIN);
	long got = recvmmsg(two, in, 2, 0, &limit);
	say("with a time: %s", yes_no(got >= 1));
	while (recv(two, room[0], 20, MSG_DONTWAIT) >= 0) {}
}

static void sizes(void) {
	static char out[70000], in[70000];
	long most = local.storage.ss_family == AF_INET ? 65507 : 65527;
	int room = 1 << 20;
	setsockopt(two, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
	const long lengths[] = {1, 1400, 2040, 2041, 9000, 65000, most};
	for (size_t i = 0; i < COUNT(lengths); i++) {
		fill_pattern(out, (size_t)lengths[i], 0, (unsigned)i);
		report("sendto", sendto(one, out, (size_t)lengths[i], 0, sockaddr_of(&name_two), name_two.length));
		wait_for(two, POLLIN);
		long got = report("recv", recv(two, in, sizeof in, 0));
		say("the same bytes: %s", yes_no(got > 0 && has_pattern(in, (size_t)got, 0, (unsigned)i)));
	}
	report("one more", sendto(one, out, (size_t)most + 1, 0, sockaddr_of(&name_two), name_two.length));
	report("many more", sendto(one, out, sizeof out, 0, sockaddr_of(&name_two), name_two.length));
}

static void order(void) {
	int wrong = 0, lost = 0;
	for (int i = 0; i < 3000; i++) {
		int number = -1;
		must("sendto", sendto(i % 2 ? one : two, &i, sizeof i, 0, sockaddr_of(i % 3 ? &name_two : &name_one), name_two.length));
		int to = i % 3 ? two : one;
		wait_for(to, POLLIN);
		lost += recv(to, &number, sizeof number, MSG_DONTWAIT) != sizeof number;
		wrong += number != i;
	}
	say("3000 one by one: %d lost, %d wrong", lost, wrong);
	for (int i = 0; i < 100; i++) must("sendto", sendto(one, &i, sizeof i, 0, sockaddr_of(&name_two), name_two.length));
	for (int i = 0; i < 100; i++) {
		int number = -1;
		wait_for(two, POLLIN);
		recv(two, &number, sizeof number, MSG_DONTWAIT);
		wrong += number != i;
	}
	say("100 at once: %d wrong", wrong);
}

static void senders(void) {
	int others[8];
	for (int i = 0; i < 8; i++) others[i] = bound_socket(0);
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 8; i++) {
			char text[20];
			sprintf(text, "%d of %d", round, i);
			must("sendto", send_to(others[i], text, name_two));
		}
	for (int round = 0; round < 3; round++)
		for (int i = 0; i < 8; i++) report_next("in the order of sending", two, name_of(others[i]));
	for (int i = 0; i < 8; i++) close(others[i]);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	one = named_socket(&name_one);
	two = named_socket(&name_two);
	by_address();
	bounds();
	looks();
	messages();
	many();
	sizes();
	order();
	senders();
	struct address self = name_one;
	report("to oneself", send_to(one, "self", self));
	report_next("from oneself", one, self);
	return 0;
}

/* bench_message ADDRESS PORT COUNT BYTES: both ends of a connection in one thread, so that what a message costs can be counted: each is
 * sent at one end and taken, by calls that do not wait, at the other. Run by "scripts/vm/run --count": the marks around the second
 * stretch count its instructions of user and kernel code. See docs/notes/message-cost.md. */
#include "common.h"

/* as scripts/vm/src/mark.c: the counting plug-in knows this instruction */
static inline void mark(void) {
#ifdef __x86_64__
	__asm__ volatile(".byte 0x0f,0x1f,0x80,0x01,0x4d,0x4c,0x56" ::: "memory");
#endif
}

static struct address where;

static void *connects(void *fd) {
	must("connect", connect_to(*(int *)fd, where));
	return NULL;
}

int main(int argc, char **argv) {
	if (argc < 5) return 2;
	begin(argc, argv);
	where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 7000));
	long count = argument(2, 2000);
	size_t bytes = (size_t)argument(3, 64);
	static char text[1 << 20];
	int listener = new_socket(0), on = 1, client = new_socket(0);
	must("SO_REUSEADDR", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("bind", bind_to(listener, where));
	must("listen", listen(listener, 1));
	pthread_t thread = start_thread(connects, &client);
	int server = (int)must("accept", accept(listener, NULL, NULL));
	pthread_join(thread, NULL);
	for (int stretch = 0; stretch < 2; stretch++) {
		int64_t start = now_us();
		mark();
		for (long i = 0; i < count; i++) {
			int from = i % 2 ? server : client, to = i % 2 ? client : server;
			send_all(from, text, bytes);
			for (size_t left = bytes; left > 0;) {
				ssize_t got = recv(to, text, left, MSG_DONTWAIT);
				if (got > 0) left -= (size_t)got;
			}
		}
		mark();
		say("nanoseconds a message %lld", (long long)((now_us() - start) * 1000 / count));
	}
	return 0;
}

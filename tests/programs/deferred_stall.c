/* A peer that is busy elsewhere holds nobody up: on TCP a call that finds room to write returns at once, whether the peer has called
 * anything on the connection or not. Each first call is made while the other end does nothing for a while; it must be over long before. */
#include "deferred.h"

enum { BUSY_MS = 3000, SOON_MS = 1000 };

static int go[2]; /* the tested end tells its peer, which waits for that, that it is over */

/* What must not take long. */
static void soon(const char *what, int64_t begun, long result) {
	report(what, result);
	say("%s: soon: %s", what, yes_no(now_us() - begun < SOON_MS * 1000));
}

static void first_send(int fd) {
	int64_t begun = now_us();
	soon("send", begun, send(fd, "hello", 5, MSG_NOSIGNAL));
}

static void first_poll(int fd) {
	struct pollfd one = {.fd = fd, .events = POLLOUT};
	int64_t begun = now_us();
	soon("poll", begun, poll(&one, 1, ARRIVAL_MS));
	soon("send", begun, send(fd, "hello", 5, MSG_NOSIGNAL));
}

/* As event loops do: what cannot be sent now is waited for. */
static void first_nonblocking(int fd) {
	struct pollfd one = {.fd = fd, .events = POLLOUT};
	int64_t begun = now_us();
	set_nonblocking(fd, true);
	ssize_t sent;
	while ((sent = send(fd, "hello", 5, MSG_NOSIGNAL)) < 0 && errno == EAGAIN) must("poll", poll(&one, 1, ARRIVAL_MS));
	soon("send", begun, sent);
	set_nonblocking(fd, false);
}

static void first_shutdown(int fd) {
	int64_t begun = now_us();
	first_send(fd);
	soon("shutdown", begun, shutdown(fd, SHUT_WR));
}

static void (*const firsts[])(int) = {first_send, first_poll, first_nonblocking, first_shutdown};
static const char *const names[] = {"send", "poll", "send without blocking", "send and shutdown"};

static void tested(int fd, long number) {
	char text[5];
	firsts[number](fd);
	must("write", write(go[1], "g", 1));
	say("the answer: %s", yes_no(recv_all(fd, text, 5) == 5 && !memcmp(text, "olleh", 5)));
	char byte;
	report("the end", recv(fd, &byte, 1, 0));
}

static void busy(int fd, long number) {
	char text[5];
	struct pollfd word = {.fd = go[0], .events = POLLIN};
	(void)number;
	must("poll", poll(&word, 1, BUSY_MS));
	must("read", read(go[0], text, 1));
	say("busy: %s", yes_no(recv_all(fd, text, 5) == 5 && !memcmp(text, "hello", 5)));
	send_all(fd, "olleh", 5);
}

/* tcp(7), TCP_DEFER_ACCEPT: "Allow a listener to be awakened only when data arrives on the socket": the client speaks first. */
static void accepted_with_data(bool after_listen) {
	enum { MANY = 5, SECONDS = 10 };
	struct server server;
	int listener = new_socket(0), seconds = SECONDS;
	must("bind", bind_to(listener, local));
	if (!after_listen) must("TCP_DEFER_ACCEPT", setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
	must("listen", listen(listener, 8));
	if (after_listen) must("TCP_DEFER_ACCEPT", setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
	server.address = name_of(listener);
	if (begin_child(&server.child)) {
		serve_forking(listener, MANY, echo, 1000);
		end_child();
	}
	close(listener);
	int64_t begun = now_us();
	for (int i = 0; i < MANY; i++) {
		int fd = connect_to_server(&server);
		ask_once("TCP_DEFER_ACCEPT", fd, 100);
		close(fd);
	}
	finish_child("server", server.child);
	soon("all of them", begun, 0);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	must("pipe", pipe(go));
	for (int after = 0; after < 2; after++) accepted_with_data(after);
	for (size_t number = 0; number < COUNT(firsts); number++)
		for (enum style style = OWN; style < STYLES; style++) {
			say("%s, at the server (%s)", names[number], style_names[style]);
			talk(style, tested, busy, (long)number);
			say("%s, at the client (%s)", names[number], style_names[style]);
			talk(style, busy, tested, (long)number);
		}
	return 0;
}

/* A server and a client as two programs, each of which may have the library, and connections that move, or not. What arrives is compared
 * byte by byte, to the end.
 *
 * forking_talk ADDRESS server PORT STYLE WAY SPEAKS CONNECTIONS: serves so many connections and ends. STYLE: own, forking, prefork (two
 * workers); WAY: how the loop waits (deferred_loop.h); SPEAKS: 1, the server greets, or 0.
 * forking_talk ADDRESS client PORT SPEAKS CONNECTIONS SILENCE [BYTES]: connects so often; is silent first for so many ms, in which nothing may come
 * but the greeting. Prints what went wrong, and at last "right N", and the longest time that anything has taken: "slowest_ms N". */
#include "deferred_loop.h"

static const char greeting[] = "220 this server speaks first\r\n";
enum { GREETING = sizeof greeting - 1, MIB = 1 << 20 };

static bool speaks;

static void serve(int fd, long way) {
	if (speaks) {
		set_nonblocking(fd, false);
		send_all(fd, greeting, GREETING);
	}
	echo_by(fd, way);
}

static int accept_one(int listener, enum waiting way) {
	struct pollfd one = {.fd = listener, .events = POLLIN};
	for (;;) {
		int fd = accept4(listener, NULL, NULL, way == BLOCK ? 0 : SOCK_NONBLOCK);
		if (fd >= 0) return fd;
		if (errno != EAGAIN) die("accept");
		must("poll", poll(&one, 1, ARRIVAL_MS));
	}
}

static void serve_some(int listener, enum style style, enum waiting way, int connections) {
	for (int i = 0; i < connections; i++) {
		int fd = accept_one(listener, way);
		if (style != FORKING || must("fork", fork()) == 0) {
			serve(fd, way);
			close(fd);
			if (style == FORKING) exit(0);
		}
		close(fd);
	}
}

static int server(void) {
	in_port_t port = htons((in_port_t)argument(2, 0));
	enum style style = (enum style)argument(3, 0);
	enum waiting way = (enum waiting)argument(4, 0);
	int connections = (int)argument(6, 1), on = 1;
	speaks = argument(5, 0);
	int listener = new_socket(way == BLOCK ? 0 : SOCK_NONBLOCK);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	*port_of(&local) = port;
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 16));
	if (style == PREFORK)
		for (int worker = 0; worker < 2; worker++)
			if (must("fork", fork()) == 0) {
				serve_some(listener, style, way, connections / 2);
				exit(0);
			}
	if (style != PREFORK) serve_some(listener, style, way, connections);
	int status, failed = 0;
	while (wait(&status) > 0) failed |= status;
	return failed != 0;
}

static int64_t slowest;

/* Ends a step that began then. */
static int64_t step(int64_t begun) {
	int64_t now = now_us();
	if (now - begun > slowest) slowest = now - begun;
	return now;
}

static bool talk_once(int silence, long bytes) {
	int64_t begun = now_us();
	int fd = new_socket(0), wrong = 0;
	char text[GREETING] = "", byte;
	must("connect", connect_to(fd, local));
	step(begun);
	if (silence) {
		sleep_ms(silence);
		/* this is the first use, where that counts */
		struct pollfd one = {.fd = fd, .events = POLLIN};
		bool came = must("poll", poll(&one, 1, speaks ? ARRIVAL_MS : 100)) == 1;
		int there = 0;
		must("FIONREAD", ioctl(fd, FIONREAD, &there));
		if (came != speaks || there != (speaks ? GREETING : 0)) say("FAILED: in silence %d bytes have come", there), wrong++;
	}
	begun = now_us();
	if (speaks && (recv_all(fd, text, GREETING) != GREETING || memcmp(text, greeting, GREETING))) say("FAILED: the greeting"), wrong++;
	begun = step(begun);
	if (through_echo(fd, 60, 60) != 60) say("FAILED: a small message"), wrong++;
	step(begun);
	if (through_echo(fd, bytes, 20000) != bytes) say("FAILED: a large message"), wrong++;
	begun = now_us();
	must("shutdown", shutdown(fd, SHUT_WR));
	if (recv(fd, &byte, 1, 0) != 0) say("FAILED: no end"), wrong++;
	step(begun);
	close(fd);
	return !wrong;
}

static int client(void) {
	int connections = (int)argument(4, 1), right = 0;
	*port_of(&local) = htons((in_port_t)argument(2, 0));
	speaks = argument(3, 0);
	for (int i = 0; i < connections; i++) right += talk_once((int)argument(5, 0), argument(6, MIB));
	say("right %d", right);
	say("slowest_ms %ld", (long)(slowest / 1000));
	return right != connections;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	return argc > 2 && !strcmp(argv[2], "server") ? server() : client();
}

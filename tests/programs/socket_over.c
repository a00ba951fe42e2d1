/* What is known of a connection that has ended, by the first call that asks: nothing has looked at it since. getpeername(2): ENOTCONN
 * "The socket is not connected", also while data that came before can be read. A server of TLS takes such data for nobody's.
 * The peer is of this thread, so that over the loopback device the end has arrived when close or shutdown returns. */
#include "common.h"

static void say_peer(int fd) {
	struct address peer = {.length = sizeof peer.storage};
	report("getpeername", getpeername(fd, sockaddr_of(&peer), &peer.length));
}

static void say_name(int fd) {
	struct address name = {.length = sizeof name.storage};
	report("getsockname", getsockname(fd, sockaddr_of(&name), &name.length));
}

static void say_state(int fd) {
	struct tcp_info info = {0};
	socklen_t length = sizeof info;
	must("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("state %d", info.tcpi_state);
}

static void say_shutdown(int fd) { report("shutdown", shutdown(fd, SHUT_RDWR)); }

/* What is left to read, and how it ends. */
static void drain(int fd) {
	char bytes[16];
	for (int more = 1; more > 0;) more = (int)report("recv", recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
	report("recv", recv(fd, bytes, sizeof bytes, MSG_DONTWAIT));
	say_peer(fd);
}

typedef void question(int fd);
static question *const questions[] = {say_peer, say_name, say_state, say_shutdown};

static void after_reset(question *ask, bool data) {
	say("reset%s", data ? " behind data" : "");
	struct pair both = new_pair();
	struct linger now = {.l_onoff = 1, .l_linger = 0};
	must("SO_LINGER", setsockopt(both.client, SOL_SOCKET, SO_LINGER, &now, sizeof now));
	if (data) must("send", send(both.client, "data", 4, 0));
	close(both.client);
	ask(both.server);
	drain(both.server);
	close(both.server);
}

/* Of TCP_INFO only whether it is the state of an established connection: which of the closing ones it is depends on the time. */
static void after_end(question *ask, bool own_too) {
	say("peer has closed%s", own_too ? ", this end is shut" : "");
	struct pair both = new_pair();
	if (own_too) must("shutdown", shutdown(both.server, SHUT_WR));
	must("send", send(both.client, "data", 4, 0));
	must("shutdown", shutdown(both.client, SHUT_WR));
	ask(both.server);
	if (own_too) {
		drain(both.server);
	} else {
		char bytes[16];
		report("recv", recv(both.server, bytes, sizeof bytes, 0));
		report("recv", recv(both.server, bytes, sizeof bytes, 0));
		say_peer(both.server);
	}
	close_pair(both);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (size_t i = 0; i < COUNT(questions); i++) {
		after_reset(questions[i], false);
		after_reset(questions[i], true);
	}
	after_end(say_peer, false);
	after_end(say_peer, true);
	after_end(say_name, true);
	return 0;
}

/* A client without a setting that connects without blocking, to a server whose connections begin on TCP, and asks by connect how it stands:
 * the server answers at once, or only when the connection has been left to TCP. connect(2): "EISCONN The socket is already connected", and on
 * Linux 0 the first time. */
#include "deferred.h"

enum { LATE_MS = 700 };

static void answer(int fd, long late) {
	sleep_ms((int)late);
	echo(fd, 100);
}

static void ask(const struct server *server, int again) {
	int fd = new_socket(SOCK_NONBLOCK);
	report("connect", connect_to(fd, server->address));
	for (int i = 0; i < again; i++) {
		/* the kernel connects within this host in no time */
		if (!i) sleep_ms(20);
		report("again", connect_to(fd, server->address));
	}
	wait_for(fd, POLLOUT);
	report_socket_error("connected", fd);
	if (!again) report("afterwards", connect_to(fd, server->address));
	for (int i = 0; i < 2; i++) {
		char text[6] = "";
		while (send(fd, "hello", 5, MSG_NOSIGNAL) < 0) {
			if (errno != EAGAIN) die("send");
			wait_for(fd, POLLOUT);
		}
		wait_bytes(fd, 5);
		report("recv", recv(fd, text, 5, 0));
		say("%s", text);
	}
	report("afterwards", connect_to(fd, server->address));
	close(fd);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (int late = 0; late < 2; late++)
		for (int again = 0; again < 3; again++) {
			say("%s, asked %d times", late ? "the server is late" : "the server answers", again);
			struct server server = start_server(OWN, 1, answer, late ? LATE_MS : 0);
			struct child client;
			/* A process reads its settings when it makes its first socket. */
			if (begin_child(&client)) {
				setenv("RSOCKET_DEFER", "0", 1);
				ask(&server, again);
				end_child();
			}
			finish_child("client", client);
			finish_child("server", server.child);
		}
	return 0;
}

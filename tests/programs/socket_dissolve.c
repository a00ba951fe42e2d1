/* shutdown(2) of a listener: SHUT_WR and a wrong argument leave it as it is, SHUT_RD ends it until listen(2) is called again.
 * connect(2) to AF_UNSPEC dissolves a connection, or a listener, and the socket can be used anew. Two threads that connect one
 * socket at the same time make one connection. */
#include "common.h"

static struct address where;
static int shared;

static void *connect_shared(void *context) {
	long result = connect_to(shared, where);
	*(int *)context = result < 0 ? errno : 0;
	return NULL;
}

static void one_connection(const char *what, int listener) {
	struct pair both = {.client = new_socket(0)};
	report(what, connect_to(both.client, name_of(listener)));
	both.server = report_descriptor("accept", accept(listener, NULL, NULL));
	char byte = 0;
	report("send", send(both.client, "x", 1, MSG_NOSIGNAL));
	report("recv", recv(both.server, &byte, 1, 0));
	close_pair(both);
}

static void listening(const char *what, int listener) {
	int value = -1;
	socklen_t length = sizeof value;
	must("SO_ACCEPTCONN", getsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length));
	say("%s: listens %d", what, value);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8);
	report("shutdown 99", shutdown(listener, 99));
	report("shutdown SHUT_WR", shutdown(listener, SHUT_WR));
	listening("then", listener);
	one_connection("connect", listener);

	say("-- AF_UNSPEC");
	struct pair both = connect_pair(listener);
	struct sockaddr nobody = {.sa_family = AF_UNSPEC};
	char byte = 0;
	report("a connection", connect(both.client, &nobody, sizeof nobody));
	wait_for(both.server, POLLHUP);
	report("the peer's recv", recv(both.server, &byte, 1, 0));
	close(both.server);
	socket_error(both.client);
	report("recv", recv(both.client, &byte, 1, MSG_DONTWAIT));
	report("connect anew", connect_to(both.client, name_of(listener)));
	both.server = report_descriptor("accept", accept(listener, NULL, NULL));
	report("send", send(both.client, "x", 1, 0));
	report("recv", recv(both.server, &byte, 1, 0));
	close_pair(both);
	report("no family", connect(new_socket(0), &nobody, 1));

	say("-- two threads connect");
	for (int i = 0; i < 5; i++) {
		shared = new_socket(0);
		where = name_of(listener);
		int results[2];
		pthread_t threads[2];
		for (int j = 0; j < 2; j++) threads[j] = start_thread(connect_shared, &results[j]);
		for (int j = 0; j < 2; j++) pthread_join(threads[j], NULL);
		say("connected: %s", yes_no(results[0] == 0 || results[1] == 0));
		both = (struct pair){.client = shared, .server = (int)must("accept", accept(listener, NULL, NULL))};
		send_all(both.client, "x", 1);
		report("recv", recv(both.server, &byte, 1, 0));
		close_pair(both);
	}

	say("-- a listener that ends");
	report("shutdown SHUT_RD", shutdown(listener, SHUT_RD));
	listening("then", listener);
	report_descriptor("accept", accept(listener, NULL, NULL));
	report("listen", listen(listener, 8));
	listening("then", listener);
	one_connection("connect", listener);
	report("AF_UNSPEC", connect(listener, &nobody, sizeof nobody));
	listening("then", listener);
	report_descriptor("accept", accept(listener, NULL, NULL));
	return 0;
}

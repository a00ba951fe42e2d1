/* Near the limit on descriptors (RLIMIT_NOFILE): connections that fit without the library fit with it, and calls on connections
 * that stand do not fail for want of a number: recv(2) has no EMFILE. */
#include "common.h"
#include <sys/resource.h>

enum { LIMIT = 64, CONNECTIONS = 18 };

static int clients[CONNECTIONS], servers[CONNECTIONS];
static int listener;

static void *accept_all(void *context) {
	(void)context;
	for (int i = 0; i < CONNECTIONS; i++) servers[i] = must("accept", accept(listener, NULL, NULL));
	return NULL;
}

static void *echo(void *context) {
	int fd = *(int *)context;
	char text[100];
	ssize_t got;
	while ((got = recv(fd, text, sizeof text, 0)) > 0) send_all(fd, text, (size_t)got);
	if (got < 0) report("recv", got);
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	setenv("RSOCKET_LOG", "off", 1); /* the warning is expected */
	struct rlimit limit;
	must("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = LIMIT;
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	listener = new_listener(0, CONNECTIONS);
	struct address where = name_of(listener);
	pthread_t accepter = start_thread(accept_all, NULL), echoers[CONNECTIONS];
	for (int i = 0; i < CONNECTIONS; i++) {
		clients[i] = new_socket(0);
		report("connect", connect_to(clients[i], where));
	}
	pthread_join(accepter, NULL);
	for (int i = 0; i < CONNECTIONS; i++) echoers[i] = start_thread(echo, &servers[i]);
	sleep_ms(200);
	int good = 0;
	for (int i = 0; i < CONNECTIONS; i++) {
		char text[10] = "";
		send_all(clients[i], "0123456789", sizeof text);
		good += recv_all(clients[i], text, sizeof text) == sizeof text && !memcmp(text, "0123456789", sizeof text);
	}
	say("echoed %d", good);
	for (int i = 0; i < CONNECTIONS; i++) must("close", close(clients[i]));
	for (int i = 0; i < CONNECTIONS; i++) pthread_join(echoers[i], NULL);
	return 0;
}

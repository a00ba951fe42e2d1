/* bind(2), connect(2): addresses of another family, too short or NULL, on sockets in every state: EAFNOSUPPORT, EINVAL, EISCONN and so on
 * in the order in which the kernel looks. */
#include "states.h"
#include <sys/un.h>

static struct sockaddr_in v4;
static struct sockaddr_in6 v6;
static struct sockaddr_un unix_name = {.sun_family = AF_UNIX, .sun_path = "/nowhere"};
static struct sockaddr strange = {.sa_family = 77};
static struct sockaddr unspecified = {.sa_family = AF_UNSPEC};

static void with(const char *what, enum state state, const void *address, socklen_t length, bool dissolves) {
	struct stand stand = stand_in(state);
	int bound = bind(stand.fd, address, length), bind_error = errno;
	printf("  %s: bind %s", what, bound < 0 ? strerrorname_np(bind_error) : "ok");
	if (!dissolves) {
		int connected = connect(stand.fd, address, length), connect_error = errno;
		printf(", connect %s", connected < 0 ? strerrorname_np(connect_error) : "ok");
		ssize_t sent = state == DISSOLVED ? 0 : sendto(stand.fd, "", 0, MSG_NOSIGNAL | MSG_DONTWAIT, address, length);
		printf(", sendto %s", sent < 0 ? strerrorname_np(errno) : "ok");
	}
	putchar('\n');
	drop(stand);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct address closed = closed_port();
	v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = *port_of(&closed)};
	v6 = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = *port_of(&closed)};
	for (int state = 0; state < STATES; state++) {
		say("%s", state_names[state]);
		bool v6_socket = local.storage.ss_family == AF_INET6;
		if (v6_socket)
			with("IPv4", state, &v4, sizeof v4, false);
		else
			with("IPv6", state, &v6, sizeof v6, false);
		with("AF_UNIX", state, &unix_name, sizeof unix_name, false);
		with("an unknown family", state, &strange, sizeof strange, false);
		/* TCP lets go of the port with the connection. */
		if (state != RESET && state != DISSOLVED) with("no family", state, &unspecified, sizeof unspecified, true);
		with("own family, too short", state, v6_socket ? (void *)&v6 : (void *)&v4, v6_socket ? 23 : 15, false);
		with("own family, 1 byte", state, v6_socket ? (void *)&v6 : (void *)&v4, 1, false);
		with("own family, nothing", state, v6_socket ? (void *)&v6 : (void *)&v4, 0, false);
		with("too long", state, &unix_name, 129, false);
		with("NULL", state, NULL, 16, false);
		with("NULL and nothing", state, NULL, 0, false);
	}
	return 0;
}

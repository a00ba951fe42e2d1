/* bind(2), ipv6(7): 0.0.0.0 and :: on one port: together only with IPV6_V6ONLY or SO_REUSEPORT; each then gets its own family's peers.
 * Case B59. */
#include "common.h"

static int listener_at(const char *what, const char *text, in_port_t port, int only, bool reuse) {
	struct address at = parse_address(text);
	*port_of(&at) = port;
	int fd = (int)must("socket", socket(at.storage.ss_family, SOCK_STREAM, 0)), on = 1;
	if (only >= 0) must("IPV6_V6ONLY", setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
	if (reuse) must("SO_REUSEADDR", setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	int result = bind_to(fd, at);
	if (!result) result = listen(fd, 8);
	say("%s: %s", what, result < 0 ? strerrorname_np(errno) : "ok");
	if (!result) return fd;
	close(fd);
	return -1;
}

static void reach(const char *text, in_port_t port, int v4, int v6) {
	struct address target = parse_address(text);
	*port_of(&target) = port;
	int client = (int)must("socket", socket(target.storage.ss_family, SOCK_STREAM, 0));
	if (connect_to(client, target) < 0) {
		say("  %s: %s", text, strerrorname_np(errno));
		close(client);
		return;
	}
	struct pollfd both[2] = {{.fd = v4, .events = POLLIN}, {.fd = v6, .events = POLLIN}};
	must("poll", poll(both, 2, ARRIVAL_MS));
	int server = (int)must("accept", accept(both[0].revents & POLLIN ? v4 : v6, NULL, NULL));
	send_all(client, "x", 1);
	char byte;
	say("  %s: %s, %zu", text, both[0].revents & POLLIN ? "the IPv4 listener" : "the IPv6 listener", recv_all(server, &byte, 1));
	close(server);
	close(client);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	static const char *const targets[] = {"127.0.0.1", "::1", "::ffff:127.0.0.1"};
	int v4 = listener_at("0.0.0.0", "0.0.0.0", 0, -1, false);
	in_port_t port = *port_of(&(struct address[]){name_of(v4)}[0]);
	int v6 = listener_at(":: beside it", "::", port, 0, false);
	v6 = v6 < 0 ? listener_at(":: beside it with V6ONLY", "::", port, 1, false) : v6;
	for (size_t i = 0; i < COUNT(targets); i++) reach(targets[i], port, v4, v6);
	close(v6);
	say("IPv6 closed");
	for (size_t i = 0; i < COUNT(targets); i++) reach(targets[i], port, v4, -1);
	close(v4);

	v6 = listener_at("::", "::", 0, 0, true);
	port = *port_of(&(struct address[]){name_of(v6)}[0]);
	v4 = listener_at("0.0.0.0 beside it", "0.0.0.0", port, -1, true);
	if (v4 >= 0) close(v4);
	v4 = listener_at("127.0.0.1 beside it", "127.0.0.1", port, -1, true);
	if (v4 >= 0) close(v4);
	for (size_t i = 0; i < COUNT(targets); i++) reach(targets[i], port, -1, v6);
	return 0;
}

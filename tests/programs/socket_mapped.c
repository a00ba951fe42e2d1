/* ipv6(7): who reaches whom between IPv4, IPv6 and mapped addresses, with IPV6_V6ONLY on and off, and which names both ends show.
 * Case B59. */
#include "common.h"

static const char *text_of(struct address name) {
	static char texts[4][INET6_ADDRSTRLEN + 16];
	static int next;
	char *text = texts[next++ % 4];
	char address[INET6_ADDRSTRLEN];
	if (name.storage.ss_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)&name.storage)->sin_addr, address, sizeof address);
	else
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&name.storage)->sin6_addr, address, sizeof address);
	sprintf(text, "%s/%u", address, name.length);
	return text;
}

static struct address peer_of(int fd) {
	struct address name = {.length = sizeof name.storage};
	must("getpeername", getpeername(fd, sockaddr_of(&name), &name.length));
	return name;
}

/* Whether the two names have the same port. */
static bool meet(struct address a, struct address b) { return *port_of(&a) == *port_of(&b); }

static void names(int client, int listener) {
	struct address accepted = {.length = sizeof accepted.storage};
	int server = (int)must("accept", accept(listener, sockaddr_of(&accepted), &accepted.length));
	struct address own = name_of(client), peer = peer_of(client), server_own = name_of(server), server_peer = peer_of(server);
	say("    client %s -> %s", text_of(own), text_of(peer));
	say("    server %s <- %s, accept says %s", text_of(server_own), text_of(server_peer), text_of(accepted));
	say("    ports meet: %s", yes_no(meet(own, server_peer) && meet(own, accepted) && meet(peer, server_own) && meet(peer, name_of(listener))));
	send_all(client, "to the server", 13);
	send_all(server, "to the client", 13);
	char text[13];
	bool right = recv_all(server, text, 13) == 13 && !memcmp(text, "to the server", 13);
	right &= recv_all(client, text, 13) == 13 && !memcmp(text, "to the client", 13);
	say("    data: %s", yes_no(right));
	close(server);
}

static void try(int listener, struct address target, int domain, struct address from) {
	static char none[] = "";
	*port_of(&target) = *port_of(&(struct address[]){name_of(listener)}[0]);
	int client = (int)must("socket", socket(domain, SOCK_STREAM, 0));
	char bound[80];
	if (from.length) {
		must("bind", bind_to(client, from));
		sprintf(bound, " from %s", text_of(from));
	} else {
		strcpy(bound, none);
	}
	int result = connect_to(client, target), error = errno;
	say("  to %s by an IPv%s socket%s: %s", text_of(target), domain == AF_INET ? "4" : "6", bound, result < 0 ? strerrorname_np(error) : "ok");
	if (!result) names(client, listener);
	close(client);
}

static void listen_at(const char *text, int only) {
	struct address at = parse_address(text);
	int listener = (int)must("socket", socket(at.storage.ss_family, SOCK_STREAM, 0));
	if (only >= 0) must("IPV6_V6ONLY", setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
	say("%s%s", text, only < 0 ? "" : only ? ", V6ONLY" : ", both families");
	int bound = bind_to(listener, at);
	if (bound < 0) {
		report("  bind", bound);
		close(listener);
		return;
	}
	must("listen", listen(listener, 8));
	static const char *const v4[] = {"127.0.0.1", "127.1.2.3", "0.0.0.0"};
	static const char *const v6[] = {"::1", "::", "::ffff:127.0.0.1", "::ffff:127.1.2.3", "::ffff:0.0.0.0"};
	struct address none = {.length = 0};
	for (size_t i = 0; i < COUNT(v4); i++) try(listener, parse_address(v4[i]), AF_INET, none);
	for (size_t i = 0; i < COUNT(v6); i++) try(listener, parse_address(v6[i]), AF_INET6, none);
	try(listener, parse_address("127.0.0.1"), AF_INET, parse_address("127.4.5.6"));
	try(listener, parse_address("::ffff:127.0.0.1"), AF_INET6, parse_address("::ffff:127.4.5.6"));
	try(listener, parse_address("127.0.0.1"), AF_INET6, none);
	try(listener, parse_address("::1"), AF_INET, none);
	close(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listen_at("0.0.0.0", -1);
	listen_at("127.0.0.1", -1);
	listen_at("127.1.2.3", -1);
	for (int only = 0; only < 2; only++) {
		listen_at("::", only);
		listen_at("::1", only);
		listen_at("::ffff:127.0.0.1", only);
		listen_at("::ffff:0.0.0.0", only);
	}
	return 0;
}

/* Connected and unconnected sockets: who is heard, what errors come back, names, wildcards, both families. */
#include "datagram.h"

static void filters(void) {
	int server = bound_socket(0), client = datagram_socket(0), other = bound_socket(0);
	struct address server_name = name_of(server), other_name = name_of(other);
	report("connect", connect_to(client, server_name));
	struct address client_name = name_of(client), peer = {.length = sizeof peer.storage};
	report("getpeername", getpeername(client, sockaddr_of(&peer), &peer.length));
	say("the server's: %s", yes_no(same_address(peer, server_name)));
	report("send", send(client, "hello", 5, 0));
	report_next("the server", server, client_name);
	report("answer", send_to(server, "welcome", client_name));
	report_next("the client", client, server_name);
	report("from a stranger", send_to(other, "psst", client_name));
	report_nothing("the client does not hear it", client);
	report("the stranger is told", send_to(other, "again", client_name) < 0 ? errno == ECONNREFUSED : 0);
	report("the client to another", send_to(client, "hi", other_name));
	report_next("that one", other, client_name);
	struct address nobody = {.storage = {.ss_family = AF_UNSPEC}, .length = sizeof(struct sockaddr)};
	report("dissolved", connect_to(client, nobody));
	report("send", send(client, "x", 1, 0));
	peer.length = sizeof peer.storage;
	report("getpeername", getpeername(client, sockaddr_of(&peer), &peer.length));
	report("to the server", send_to(client, "still here", server_name));
	char text[50];
	wait_for(server, POLLIN);
	report("it comes", recv(server, text, sizeof text, 0));
	close(server);
	close(client);
	close(other);
}

static void before_and_after(void) {
	int server = bound_socket(0), one = bound_socket(0), two = bound_socket(0);
	struct address name = name_of(server);
	send_to(one, "from one", name);
	send_to(two, "from two", name);
	wait_for(server, POLLIN);
	report("the server connects to two", connect_to(server, name_of(two)));
	report_next("what came before stays", server, name_of(one));
	report_next("and the next", server, name_of(two));
	send_to(two, "two again", name);
	report_next("two is heard", server, name_of(two));
	send_to(one, "one again", name);
	report_nothing("one is not", server);
	report("the server connects to one", connect_to(server, name_of(one)));
	send_to(one, "one at last", name);
	/* What the last datagram met may have come back. */
	send_to(one, "one at last", name);
	report_next("one is heard", server, name_of(one));
	close(server);
	close(one);
	close(two);
}

static void refusals(void) {
	int client = datagram_socket(0), gone = bound_socket(0);
	struct address name = name_of(gone);
	report("connect", connect_to(client, name));
	report("send", send(client, "a", 1, 0));
	char text[8];
	wait_for(gone, POLLIN);
	report("recv", recv(gone, text, sizeof text, 0));
	close(gone);
	report("send to nobody", send(client, "b", 1, 0));
	say("events: %s", event_names(wait_for(client, POLLERR)));
	int error = 0;
	socklen_t length = sizeof error;
	getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length);
	say("SO_ERROR: %s", strerrorname_np(error));
	report("send to nobody", send(client, "c", 1, 0));
	wait_for(client, POLLERR);
	report("recv", recv(client, text, sizeof text, MSG_DONTWAIT));
	report("and once only", recv(client, text, sizeof text, MSG_DONTWAIT));
	int unconnected = datagram_socket(0);
	report("unconnected, to nobody", send_to(unconnected, "d", name));
	report("no error", send_to(unconnected, "e", name));
	int again = datagram_socket(0);
	report("somebody is there again", bind_to(again, name));
	report("send", send(client, "f", 1, 0));
	report_next("it comes", again, name_of(client));
	report("send", send_to(unconnected, "g", name));
	wait_for(again, POLLIN);
	report("it comes, too", recv(again, text, sizeof text, 0));
	close(client);
	close(unconnected);
	close(again);
}

static void wildcard(void) {
	int server = datagram_socket(0), client = datagram_socket(0);
	must("bind", bind_to(server, any_address(local.storage.ss_family)));
	struct address to = local;
	*port_of(&to) = *port_of(&(struct address){.storage = name_of(server).storage});
	report("to a wildcard", send_to(client, "hello", to));
	struct address client_name = name_of(client), source = {.length = sizeof source.storage};
	char text[50] = {0};
	wait_for(server, POLLIN);
	report("recvfrom", recvfrom(server, text, sizeof text, 0, sockaddr_of(&source), &source.length));
	say("from the client's port: %s", yes_no(*port_of(&source) == *port_of(&client_name)));
	struct address expected = local;
	*port_of(&expected) = *port_of(&client_name);
	say("from this address: %s", yes_no(same_address(source, expected)));
	report("answer", send_to(server, "answer", source));
	report_next("it comes from where it was sent to", client, to);
	struct address unspecified = any_address(local.storage.ss_family);
	*port_of(&unspecified) = *port_of(&to);
	report("to the unspecified address", send_to(client, "loop", unspecified));
	wait_for(server, POLLIN);
	report("recv", recv(server, text, sizeof text, 0));
	report("bind once more", bind_to(server, local));
	close(server);
	close(client);
}

static void families(void) {
	int server = socket(AF_INET6, SOCK_DGRAM, 0), only = socket(AF_INET6, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0), on = 1;
	if (server < 0) return;
	must("bind", bind_to(server, any_address(AF_INET6)));
	struct address to = parse_address("127.0.0.1");
	*port_of(&to) = *port_of(&(struct address){.storage = name_of(server).storage});
	report("IPv4 to a socket of both", send_to(client, "four", to));
	struct address source = {.length = sizeof source.storage};
	char text[50] = {0}, host[INET6_ADDRSTRLEN];
	wait_for(server, POLLIN);
	report("recvfrom", recvfrom(server, text, sizeof text, 0, sockaddr_of(&source), &source.length));
	inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&source.storage)->sin6_addr, host, sizeof host);
	say("from %s", host);
	report("answer", send_to(server, "mapped", source));
	report_next("it comes", client, to);
	must("IPV6_V6ONLY", setsockopt(only, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
	struct address name = any_address(AF_INET6);
	must("bind", bind_to(only, name));
	*port_of(&to) = *port_of(&(struct address){.storage = name_of(only).storage});
	report("IPv4 to one of IPv6 alone", send_to(client, "four", to));
	report_nothing("does not come", only);
	report("and back", send_to(only, "x", source));
	struct address wrong = any_address(AF_INET6);
	*port_of(&wrong) = *port_of(&to);
	report("IPv6 from an IPv4 socket", send_to(client, "x", wrong));
	close(server);
	close(only);
	close(client);
}

static void addresses(void) {
	int one = socket(AF_INET, SOCK_DGRAM, 0), two = socket(AF_INET, SOCK_DGRAM, 0), client = socket(AF_INET, SOCK_DGRAM, 0);
	struct address first = parse_address("127.0.0.1"), second = parse_address("127.0.0.2");
	must("bind", bind_to(one, first));
	*port_of(&second) = *port_of(&(struct address){.storage = name_of(one).storage});
	report("the same port at another address", bind_to(two, second));
	send_to(client, "to one", name_of(one));
	send_to(client, "to two", second);
	char text[50] = {0};
	wait_for(one, POLLIN);
	recv(one, text, sizeof text, 0);
	say("one: %s", text);
	wait_for(two, POLLIN);
	recv(two, text, sizeof text, 0);
	say("two: %s", text);
	send_to(two, "from two", name_of(one));
	report_next("from the second address", one, second);
	close(one);
	close(two);
	close(client);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	filters();
	before_and_after();
	refusals();
	wildcard();
	families();
	addresses();
	return 0;
}

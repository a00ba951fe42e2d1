/* socket(7): options of SOL_SOCKET, IPPROTO_IP and IPPROTO_IPV6 on a fresh, listening, connected and accepted socket: default,
 * set, get. Sizes that the kernel makes of memory are printed as relations. Case B60. */
#include "common.h"

static int get(const char *what, int fd, int level, int option) {
	int value = -1;
	socklen_t length = sizeof value;
	int result = getsockopt(fd, level, option, &value, &length);
	if (result < 0)
		say("  get %s: %s", what, strerrorname_np(errno));
	else
		say("  get %s: %d, length %u", what, value, length);
	return value;
}

static void set(const char *what, int fd, int level, int option, int value) {
	int result = setsockopt(fd, level, option, &value, sizeof value);
	say("  set %s to %d: %s", what, value, result < 0 ? strerrorname_np(errno) : "ok");
	get(what, fd, level, option);
}

static void facts(int fd) {
	say("  SO_TYPE is SOCK_STREAM: %s", yes_no(get("SO_TYPE", fd, SOL_SOCKET, SO_TYPE) == SOCK_STREAM));
	get("SO_DOMAIN", fd, SOL_SOCKET, SO_DOMAIN);
	get("SO_PROTOCOL", fd, SOL_SOCKET, SO_PROTOCOL);
	get("SO_ACCEPTCONN", fd, SOL_SOCKET, SO_ACCEPTCONN);
	get("SO_ERROR", fd, SOL_SOCKET, SO_ERROR);
	set("SO_TYPE", fd, SOL_SOCKET, SO_TYPE, SOCK_STREAM);
	set("SO_ACCEPTCONN", fd, SOL_SOCKET, SO_ACCEPTCONN, 1);
	set("SO_ERROR", fd, SOL_SOCKET, SO_ERROR, 1);
}

static void switches(int fd) {
	static const struct {
		const char *name;
		int level, option;
	} all[] = {
		{"SO_REUSEADDR", SOL_SOCKET, SO_REUSEADDR}, {"SO_REUSEPORT", SOL_SOCKET, SO_REUSEPORT},
		{"SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE}, {"SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE},
		{"SO_BROADCAST", SOL_SOCKET, SO_BROADCAST}, {"SO_DONTROUTE", SOL_SOCKET, SO_DONTROUTE},
	};
	for (size_t i = 0; i < COUNT(all); i++) {
		get(all[i].name, fd, all[i].level, all[i].option);
		set(all[i].name, fd, all[i].level, all[i].option, 1);
		set(all[i].name, fd, all[i].level, all[i].option, 7);
		set(all[i].name, fd, all[i].level, all[i].option, 0);
	}
	get("SO_RCVLOWAT", fd, SOL_SOCKET, SO_RCVLOWAT);
	set("SO_PRIORITY", fd, SOL_SOCKET, SO_PRIORITY, 3);
	if (local.storage.ss_family == AF_INET)
		set("IP_TOS", fd, IPPROTO_IP, IP_TOS, 0x10);
	else
		get("IPV6_V6ONLY", fd, IPPROTO_IPV6, IPV6_V6ONLY);
}

static void linger(int fd) {
	struct linger value = {-1, -1};
	socklen_t length = sizeof value;
	report("  get SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &length));
	say("  SO_LINGER %d %d, length %u", value.l_onoff, value.l_linger, length);
	value = (struct linger){1, 12};
	report("  set SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
	value = (struct linger){0, 0};
	getsockopt(fd, SOL_SOCKET, SO_LINGER, &value, &length);
	say("  SO_LINGER %d %d", value.l_onoff, value.l_linger);
	value = (struct linger){0, 0};
	report("  set SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof value));
	report("  set SO_LINGER, short", setsockopt(fd, SOL_SOCKET, SO_LINGER, &value, sizeof(int)));
}

static void sizes(int fd) {
	static const struct {
		const char *name;
		int option;
	} all[] = {{"SO_SNDBUF", SO_SNDBUF}, {"SO_RCVBUF", SO_RCVBUF}};
	for (size_t i = 0; i < COUNT(all); i++) {
		int value = 0, wanted = 50000;
		socklen_t length = sizeof value;
		report(all[i].name, getsockopt(fd, SOL_SOCKET, all[i].option, &value, &length));
		say("  more than 4096: %s, length %u", yes_no(value > 4096), length);
		report(all[i].name, setsockopt(fd, SOL_SOCKET, all[i].option, &wanted, sizeof wanted));
		getsockopt(fd, SOL_SOCKET, all[i].option, &value, &length);
		say("  twice what was set: %s", yes_no(value == 2 * wanted));
	}
}

static void errors(int fd) {
	int value = 1;
	char byte = 1;
	long long wide = 0x0123456700000001;
	socklen_t length;
	report("  set with 1 byte", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &byte, 1));
	report("  set with 0 bytes", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, 0));
	report("  set with 8 bytes", setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &wide, sizeof wide));
	value = 0x7f7f7f7f;
	length = 1;
	report("  get with 1 byte", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
	say("  value %x, length %u", (unsigned)value, length);
	length = 0;
	report("  get with 0 bytes", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
	length = sizeof wide;
	wide = -1;
	report("  get with 8 bytes", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &wide, &length));
	say("  value %d, length %u", (int)wide, length);
	length = (socklen_t)-1;
	report("  get with -1 bytes", getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, &length));
	length = sizeof value;
	report("  unknown option", getsockopt(fd, SOL_SOCKET, 9999, &value, &length));
	report("  unknown option", setsockopt(fd, SOL_SOCKET, 9999, &value, sizeof value));
	report("  unknown level", getsockopt(fd, 9999, 1, &value, &length));
	report("  unknown level", setsockopt(fd, 9999, 1, &value, sizeof value));
	value = 0;
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &value, sizeof value);
}

static void all(const char *what, int fd) {
	say("%s", what);
	facts(fd);
	switches(fd);
	linger(fd);
	sizes(fd);
	errors(fd);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	all("fresh", new_socket(0));
	int listener = new_listener(0, 4);
	struct pair both = connect_pair(listener);
	all("listening", listener);
	all("connected", both.client);
	all("accepted", both.server);
	char byte = 'x';
	report("still works", send(both.client, &byte, 1, 0));
	report("still works", recv(both.server, &byte, 1, 0));
	return 0;
}

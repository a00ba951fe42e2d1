/* tcp(7): options of IPPROTO_TCP on fresh, listening, connected and accepted sockets. Values that depend on the path
 * (TCP_MAXSEG, TCP_INFO) are printed as relations. Case B60. */
#include "common.h"

static int get(const char *what, int fd, int option) {
	int value = -1;
	socklen_t length = sizeof value;
	if (getsockopt(fd, IPPROTO_TCP, option, &value, &length) < 0)
		say("  get %s: %s", what, strerrorname_np(errno));
	else
		say("  get %s: %d, length %u", what, value, length);
	return value;
}

static void set(const char *what, int fd, int option, int value) {
	say("  set %s to %d: %s", what, value,
	    setsockopt(fd, IPPROTO_TCP, option, &value, sizeof value) < 0 ? strerrorname_np(errno) : "ok");
	if (option != TCP_QUICKACK && option != TCP_DEFER_ACCEPT) get(what, fd, option);
}

static void all(const char *what, int fd, bool connected) {
	static const struct {
		const char *name;
		int option, values[3];
	} table[] = {
		{"TCP_NODELAY", TCP_NODELAY, {1, 5, 0}},
		{"TCP_KEEPIDLE", TCP_KEEPIDLE, {30, 0, 40000}},
		{"TCP_KEEPINTVL", TCP_KEEPINTVL, {5, 0, 40000}},
		{"TCP_KEEPCNT", TCP_KEEPCNT, {3, 0, 200}},
		{"TCP_USER_TIMEOUT", TCP_USER_TIMEOUT, {15000, -1, 0}},
		{"TCP_CORK", TCP_CORK, {1, 0, 0}},
		{"TCP_QUICKACK", TCP_QUICKACK, {0, 1, 1}},
		{"TCP_DEFER_ACCEPT", TCP_DEFER_ACCEPT, {3, 0, 0}},
	};
	say("%s", what);
	for (size_t i = 0; i < COUNT(table); i++) {
		if (table[i].option != TCP_QUICKACK) get(table[i].name, fd, table[i].option);
		for (int k = 0; k < 3; k++) set(table[i].name, fd, table[i].option, table[i].values[k]);
	}
	int segment = 0;
	socklen_t length = sizeof segment;
	report("  get TCP_MAXSEG", getsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, &length));
	say("  sensible: %s, length %u", yes_no(segment >= 88 && segment <= 65535), length);
	segment = 1000;
	report("  set TCP_MAXSEG", setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment));
	segment = 10;
	report("  set TCP_MAXSEG too small", setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment));
	char name[16] = "";
	length = sizeof name;
	report("  get TCP_CONGESTION", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length));
	say("  has a name: %s", yes_no(name[0] != 0));
	report("  set TCP_CONGESTION to the same", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, (socklen_t)strlen(name)));
	report("  set TCP_CONGESTION to nonsense", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nonsense", 8));
	struct tcp_info info = {.tcpi_state = 99};
	length = sizeof info;
	report("  get TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("  all of it: %s", yes_no(length == sizeof info));
	if (connected) say("  established: %s, segments have a size: %s", yes_no(info.tcpi_state == TCP_ESTABLISHED), yes_no(info.tcpi_snd_mss > 0));
	length = 4;
	report("  get TCP_INFO, short", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	say("  length %u", length);
	int value = 1;
	length = sizeof value;
	report("  unknown option", getsockopt(fd, IPPROTO_TCP, 9999, &value, &length));
	report("  unknown option", setsockopt(fd, IPPROTO_TCP, 9999, &value, sizeof value));
	report("  set with 1 byte", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 1));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	all("fresh", new_socket(0), false);
	int listener = new_listener(0, 4);
	struct pair both = connect_pair(listener);
	all("listening", listener, false);
	all("connected", both.client, true);
	all("accepted", both.server, true);
	int queue = 5;
	report("TCP_FASTOPEN on a listener", setsockopt(listener, IPPROTO_TCP, TCP_FASTOPEN, &queue, sizeof queue));
	int on = 1;
	report("TCP_CORK", setsockopt(both.client, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
	send_all(both.client, "corked", 6);
	on = 0;
	report("uncorked", setsockopt(both.client, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
	char text[6];
	report("recv", recv(both.server, text, sizeof text, MSG_WAITALL));
	return 0;
}

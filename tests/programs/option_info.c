/* tcp(7), ip(7): what a connection tells of itself: TCP_INFO, TCP_MAXSEG, IP_MTU. Sizes and times are printed as relations; the state is
 * the same one in each stand. Case B60. */
#include "states.h"
#include <stddef.h>

static struct tcp_info info_of(int fd) {
	struct tcp_info info = {.tcpi_state = 99};
	socklen_t length = sizeof info;
	must("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	return info;
}

static int number(int fd, int level, int option) {
	int value = -1;
	socklen_t length = sizeof value;
	return getsockopt(fd, level, option, &value, &length) < 0 ? -errno : value;
}

static void states(void) {
	for (int state = 0; state < STATES; state++) {
		struct stand stand = stand_in(state);
		for (int tries = 0; tries < 1000 && info_of(stand.fd).tcpi_state == TCP_FIN_WAIT1; tries++) sleep_ms(1);
		say("%s: state %d", state_names[state], info_of(stand.fd).tcpi_state);
		drop(stand);
	}
}

static void lengths(int fd) {
	char room[600];
	socklen_t whole = sizeof room;
	must("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, room, &whole));
	say("whole: %u", whole);
	static const socklen_t lengths[] = {0, 1, 8, 9, 104, 192, 599};
	for (size_t i = 0; i < COUNT(lengths); i++) {
		socklen_t length = lengths[i];
		memset(room, 0x5a, sizeof room);
		int result = getsockopt(fd, IPPROTO_TCP, TCP_INFO, room, &length);
		say("of %u: %d, length %u, none beyond: %s", lengths[i], result, length, yes_no(room[length] == 0x5a && room[599] == 0x5a));
	}
}

static void relations(const char *what, int fd, uint64_t sent, uint64_t received) {
	struct tcp_info info = info_of(fd);
	int segment = number(fd, IPPROTO_TCP, TCP_MAXSEG);
	say("%s: segments: %s, the same: %s, advertised: %s", what, yes_no(info.tcpi_snd_mss >= 536 && info.tcpi_snd_mss < 65536),
	    yes_no((int)info.tcpi_snd_mss == segment), yes_no(info.tcpi_advmss >= 536));
	say("%s: round trip: %s, below a second: %s, minimum not above: %s", what, yes_no(info.tcpi_rtt > 0), yes_no(info.tcpi_rtt < 1000000),
	    yes_no(info.tcpi_rto >= 200000));
	say("%s: window: %s, MTU: %s, options: %d, lost %u", what, yes_no(info.tcpi_snd_cwnd >= 10), yes_no(info.tcpi_pmtu >= 1280),
	    info.tcpi_options & 7, info.tcpi_lost + info.tcpi_total_retrans);
	/* Kernel and glibc differ in how much of the structure they know. */
	uint64_t counts[2] = {0, 0};
	char raw[256] = {0};
	socklen_t length = sizeof raw;
	must("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, raw, &length));
	memcpy(&counts[0], raw + 200, 8); /* tcpi_bytes_sent */
	memcpy(&counts[1], raw + 128, 8); /* tcpi_bytes_received */
	say("%s: bytes sent as counted: %s, received: %s", what, yes_no(counts[0] == sent), yes_no(counts[1] == received));
}

static void segments(void) {
	int listener = new_listener(0, 4), wanted = 1000;
	struct pair both = {.client = new_socket(0)};
	must("TCP_MAXSEG", setsockopt(both.client, IPPROTO_TCP, TCP_MAXSEG, &wanted, sizeof wanted));
	must("connect", connect_to(both.client, name_of(listener)));
	both.server = (int)must("accept", accept(listener, NULL, NULL));
	say("set before: %d", number(both.client, IPPROTO_TCP, TCP_MAXSEG));
	wanted = 600;
	report("set later", setsockopt(both.client, IPPROTO_TCP, TCP_MAXSEG, &wanted, sizeof wanted));
	say("as before: %d", number(both.client, IPPROTO_TCP, TCP_MAXSEG));
	close_pair(both);
	close(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	states();
	struct pair both = new_pair();
	int mtu = local.storage.ss_family == AF_INET6 ? number(both.client, IPPROTO_IPV6, IPV6_MTU) : number(both.client, IPPROTO_IP, IP_MTU);
	say("the loopback's MTU: %s", yes_no(mtu >= 1280));
	lengths(both.client);
	relations("before", both.client, 0, 0);
	enum { BYTES = 100000 };
	send_pattern(both.client, BYTES, 1000, 1);
	recv_pattern(both.server, BYTES, 5000, 1);
	sleep_ms(100); /* acknowledgements */
	relations("client", both.client, BYTES, 0);
	relations("server", both.server, 0, BYTES);
	close_pair(both);
	segments();
	return 0;
}

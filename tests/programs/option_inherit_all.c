/* accept(2): which options of a listener its accepted sockets have: each of them is set, before listen and after it. Case B60. */
#include "option_table.h"

static int get(const struct option *option, int fd) {
	int value = -77;
	socklen_t length = sizeof value;
	return getsockopt(fd, option->level, option->number, &value, &length) < 0 ? -1000 - errno : value;
}

static bool is_left_out(const struct option *option) {
	/* These are given out or used up by the connection itself. */
	static const int left_out[] = {TCP_MAXSEG, TCP_WINDOW_CLAMP, TCP_TIMESTAMP, TCP_QUICKACK};
	if (option->level == IPPROTO_TCP)
		for (size_t i = 0; i < COUNT(left_out); i++)
			if (option->number == left_out[i]) return true;
	/* A listener that is limited to one CPU would be another test. */
	return (option->flags & READ_ONLY) || (option->level == SOL_SOCKET && option->number == SO_INCOMING_CPU);
}

static void one(const struct option *option, bool late) {
	int listener = new_socket(0);
	int before = get(option, listener);
	must("bind", bind_to(listener, local));
	if (late) must("listen", listen(listener, 4));
	int value = option->values[0];
	if (setsockopt(listener, option->level, option->number, &value, sizeof value) < 0) {
		close(listener);
		return;
	}
	if (!late) must("listen", listen(listener, 4));
	int on_listener = get(option, listener);
	struct pair both = {.client = new_socket(0)};
	must("connect", connect_to(both.client, name_of(listener)));
	send_all(both.client, "x", 1); /* TCP_DEFER_ACCEPT waits for it */
	both.server = (int)must("accept", accept(listener, NULL, NULL));
	int accepted = get(option, both.server);
	if (option->level == SOL_SOCKET && option->number == SO_RCVBUF) accepted = accepted >= value ? value : 0;
	say("%s %s: %s, %d", option->name, late ? "after listen" : "before listen",
	    accepted == on_listener ? "the listener's" : accepted == before ? "as ever" : "another", accepted);
	close_pair(both);
	close(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (size_t i = 0; i < COUNT(int_options); i++)
		for (int late = 0; late < 2; late++)
			if (!is_left_out(&int_options[i])) one(&int_options[i], late);
	return 0;
}

/* The states of a stream socket, each made anew so that one look does not disturb the next. */
#ifndef STATES_H
#define STATES_H
#include "common.h"

enum state {
	FRESH,
	BOUND,
	LISTENING,
	CONNECTED,
	ACCEPTED,
	WRITE_SHUT,
	READ_SHUT,
	BOTH_SHUT,
	PEER_SHUT,
	PEER_CLOSED,
	RESET,
	DISSOLVED,
	REFUSED,
	STATES
};

static const char *const state_names[] = {"fresh",	 "bound",     "listening", "connected",	  "accepted", "write half shut", "read half shut",
					  "both shut", "peer shut", "peer closed", "reset by peer", "dissolved", "refused"};

struct stand {
	int fd;	   /* the socket in the state */
	int other; /* its peer, or -1 */
};

static inline void drop(struct stand stand) {
	close(stand.fd);
	if (stand.other >= 0) close(stand.other);
}

static inline void reset(int fd) {
	struct linger now = {1, 0};
	must("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now));
	close(fd);
}

static inline struct stand in_pair(enum state state) {
	struct pair both = new_pair();
	struct stand made = {both.client, both.server};
	switch (state) {
	case ACCEPTED: return (struct stand){both.server, both.client};
	case WRITE_SHUT: must("shutdown", shutdown(made.fd, SHUT_WR)); break;
	case READ_SHUT: must("shutdown", shutdown(made.fd, SHUT_RD)); break;
	case BOTH_SHUT: must("shutdown", shutdown(made.fd, SHUT_RDWR)); break;
	case PEER_SHUT:
		must("shutdown", shutdown(made.other, SHUT_WR));
		wait_for(made.fd, POLLRDHUP);
		break;
	case PEER_CLOSED:
		close(made.other);
		made.other = -1;
		wait_for(made.fd, POLLRDHUP);
		break;
	case RESET:
		reset(made.other);
		made.other = -1;
		wait_for(made.fd, POLLHUP);
		break;
	case DISSOLVED: {
		struct sockaddr none = {.sa_family = AF_UNSPEC};
		must("dissolve", connect(made.fd, &none, sizeof none));
		break;
	}
	default: break;
	}
	return made;
}

static inline struct stand stand_in(enum state state) {
	struct stand made = {-1, -1};
	switch (state) {
	case FRESH: made.fd = new_socket(0); break;
	case BOUND:
		made.fd = new_socket(0);
		must("bind", bind_to(made.fd, local));
		break;
	case LISTENING: made.fd = new_listener(0, 4); break;
	case REFUSED:
		made.fd = new_socket(0);
		if (connect_to(made.fd, closed_port()) == 0 || errno != ECONNREFUSED) die("a refusal");
		break;
	default: return in_pair(state);
	}
	return made;
}

#endif

/* A peer that has closed: the first write is taken, is answered by a reset, and from then on every write is EPIPE (send(2)); what poll, SO_ERROR
 * and recv say in between. Also after shutdown of one or both directions on either side. */
#include "common.h"

static volatile sig_atomic_t pipes;

static void count_pipe(int number) {
	(void)number;
	pipes++;
}

enum { SETTLE_MS = 5 };

static void look(const char *when, int fd) { say("    %s: %s", when, event_names(events_now(fd, ALL_EVENTS))); }

static void hear(int fd) {
	char text[16];
	report("    recv", recv(fd, text, sizeof text, MSG_DONTWAIT));
}

static void put(int fd, size_t bytes) {
	static char text[100000];
	pipes = 0;
	errno = 0;
	report("    send", send(fd, text, bytes, MSG_DONTWAIT));
	if (pipes) say("    SIGPIPE");
	sleep_ms(SETTLE_MS);
}

/* s: send, S: send much, p: poll, r: recv, e: SO_ERROR, w: shutdown for writing, d: shutdown for reading, z: send of nothing */
static void play(const char *what, int fd, const char *steps) {
	say("  %s, %s", what, steps);
	for (; *steps; steps++) switch (*steps) {
		case 's': put(fd, 1); break;
		case 'S': put(fd, 100000); break;
		case 'z': put(fd, 0); break;
		case 'p': look("poll", fd); break;
		case 'r': hear(fd); break;
		case 'e': report_socket_error("    error", fd); break;
		case 'w': report("    SHUT_WR", shutdown(fd, SHUT_WR)), sleep_ms(SETTLE_MS); break;
		case 'd': report("    SHUT_RD", shutdown(fd, SHUT_RD)); break;
		}
}

static void closes(struct pair both) { close(both.server); }
static void says_and_closes(struct pair both) {
	send_all(both.server, "bye", 3);
	close(both.server);
}
static void shuts_and_closes(struct pair both) {
	shutdown(both.server, SHUT_WR);
	sleep_ms(SETTLE_MS);
	close(both.server);
}
static void shuts_both(struct pair both) { shutdown(both.server, SHUT_RDWR); }
static void shuts(struct pair both) { shutdown(both.server, SHUT_WR); }
static void resets(struct pair both) {
	struct linger now = {1, 0};
	setsockopt(both.server, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	close(both.server);
}
static void says_and_resets(struct pair both) {
	send_all(both.server, "bye", 3);
	resets(both);
}

static const struct {
	const char *name;
	void (*end)(struct pair);
} ends[] = {
    {"closed", closes},	      {"said and closed", says_and_closes}, {"shut and closed", shuts_and_closes}, {"shut in both directions", shuts_both},
    {"shut for writing", shuts}, {"reset", resets},			    {"said and reset", says_and_resets},
};

static const char *const plays[] = {"sss", "psppssp", "pspeepsp", "sprrsp", "prspr", "spewp", "wpsep", "sprpep", "Spsp", "zpsps", "dpsps", "esesrp"};

int main(int argc, char **argv) {
	begin(argc, argv);
	signal(SIGPIPE, count_pipe);
	for (size_t end = 0; end < COUNT(ends); end++)
		for (size_t i = 0; i < COUNT(plays); i++) {
			struct pair both = new_pair();
			ends[end].end(both);
			sleep_ms(SETTLE_MS);
			wait_for(both.client, POLLRDHUP);
			play(ends[end].name, both.client, plays[i]);
			close(both.client);
		}
	return 0;
}

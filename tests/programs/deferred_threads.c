/* Several threads make the first call on one connection at once; a signal comes during it; another thread shuts the connection. signal(7):
 * a call that a handler interrupts is begun anew with SA_RESTART, and fails with EINTR without, if nothing was transferred. */
#include "deferred.h"

static int go[2]; /* the tested end tells its peer to go on */

static void hear(void) {
	char byte;
	if (read(go[0], &byte, 1) != 1) die("the word to go on");
}

static void tell(void) { must("write", write(go[1], "g", 1)); }

struct piece {
	int fd;
	uint64_t bytes;
	pthread_barrier_t *together;
	uint64_t right;
};

static void *send_piece(void *context) {
	struct piece *piece = context;
	pthread_barrier_wait(piece->together);
	send_pattern(piece->fd, piece->bytes, 3000, 4);
	return NULL;
}

static void *receive_piece(void *context) {
	struct piece *piece = context;
	pthread_barrier_wait(piece->together);
	piece->right = recv_pattern(piece->fd, piece->bytes, 3000, 4);
	return NULL;
}

static void *poll_piece(void *context) {
	struct piece *piece = context;
	struct pollfd one = {.fd = piece->fd, .events = POLLIN | POLLOUT};
	pthread_barrier_wait(piece->together);
	piece->right = (uint64_t)must("poll", poll(&one, 1, ARRIVAL_MS));
	return NULL;
}

/* Both directions and a poll begin at the same time. */
static void all_at_once(int fd, long bytes) {
	pthread_barrier_t together;
	pthread_barrier_init(&together, NULL, 3);
	struct piece pieces[3] = {{fd, (uint64_t)bytes, &together, 0}, {fd, (uint64_t)bytes, &together, 0}, {fd, 0, &together, 0}};
	pthread_t threads[] = {start_thread(send_piece, &pieces[0]), start_thread(receive_piece, &pieces[1]),
			       start_thread(poll_piece, &pieces[2])};
	for (size_t i = 0; i < COUNT(threads); i++) pthread_join(threads[i], NULL);
	if (pieces[1].right != (uint64_t)bytes || pieces[2].right != 1) say("FAILED: %lu, %lu", pieces[1].right, pieces[2].right);
}

static void rounds(enum style style) {
	enum { ROUNDS = 20 };
	struct server server = start_server(style, ROUNDS, all_at_once, 30000);
	for (int round = 0; round < ROUNDS; round++) {
		int fd = connect_to_server(&server);
		all_at_once(fd, 30000);
		char byte;
		if (recv(fd, &byte, 1, 0) != 0) say("FAILED: no end");
		close(fd);
	}
	finish_child("server", server.child);
}

static volatile sig_atomic_t handled;

static void handler(int number) {
	(void)number;
	handled++;
}

struct target {
	pthread_t thread;
	int until;
};

/* Signals until the thread's handler has run so often, and a moment more, so that it sleeps. */
static void *signal_it(void *context) {
	struct target *target = context;
	sleep_ms(30);
	while (handled < target->until) {
		pthread_kill(target->thread, SIGUSR1);
		sleep_ms(5);
	}
	tell();
	return NULL;
}

static void install(int flags) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
	must("sigaction", sigaction(SIGUSR1, &action, NULL));
	handled = 0;
}

/* The first call is interrupted: restarted, the peer's byte comes; else EINTR, and the next call gets it. */
static void interrupted(int fd, long restart) {
	char byte = 0;
	install(restart ? SA_RESTART : 0);
	struct target target = {pthread_self(), restart ? 3 : 1};
	pthread_t thread = start_thread(signal_it, &target);
	report("the first call", recv(fd, &byte, 1, 0));
	pthread_join(thread, NULL);
	if (!restart) {
		sleep_ms(20);
		report("the second call", recv(fd, &byte, 1, 0));
	}
	say("the byte: %c", byte);
	send_all(fd, "k", 1);
	report("the end", recv(fd, &byte, 1, 0));
}

/* poll is never restarted. */
static void interrupted_poll(int fd, long unused) {
	(void)unused;
	struct pollfd one = {.fd = fd, .events = POLLIN};
	install(SA_RESTART);
	struct target target = {pthread_self(), 1};
	pthread_t thread = start_thread(signal_it, &target);
	report("poll", poll(&one, 1, ARRIVAL_MS));
	pthread_join(thread, NULL);
	char byte = 0;
	report("recv", recv(fd, &byte, 1, 0));
	send_all(fd, "k", 1);
	report("the end", recv(fd, &byte, 1, 0));
}

/* Its first call comes when it hears of the other's signal. */
static void late(int fd, long unused) {
	(void)unused;
	char byte = 0;
	hear();
	send_all(fd, "b", 1);
	recv_all(fd, &byte, 1);
	say("answer: %c", byte);
}

static void *shut_later(void *context) {
	sleep_ms(40);
	must("shutdown", shutdown(*(int *)context, SHUT_RDWR));
	return NULL;
}

/* Another thread shuts what the first call waits for. */
static void shut_meanwhile(int fd, long unused) {
	(void)unused;
	char byte;
	pthread_t thread = start_thread(shut_later, &fd);
	report("the first call", recv(fd, &byte, 1, 0));
	pthread_join(thread, NULL);
	report("send", send(fd, "x", 1, MSG_NOSIGNAL));
}

static void sees_end(int fd, long unused) {
	(void)unused;
	char byte;
	report("the end", recv(fd, &byte, 1, 0));
}

/* Handlers make calls on another connection, which is at its own first one. */
static int other_fd;

static void handler_sends(int number) {
	(void)number;
	if (!handled++) send(other_fd, "h", 1, MSG_NOSIGNAL);
}

static void handler_first(enum style style) {
	struct server one = start_server(style, 1, late, 0), other = start_server(style, 1, echo, 10);
	int fd = connect_to_server(&one);
	other_fd = connect_to_server(&other);
	struct sigaction action = {.sa_handler = handler_sends, .sa_flags = SA_RESTART};
	must("sigaction", sigaction(SIGUSR1, &action, NULL));
	handled = 0;
	struct target target = {pthread_self(), 1};
	pthread_t thread = start_thread(signal_it, &target);
	char byte = 0;
	report("the first call", recv(fd, &byte, 1, 0));
	pthread_join(thread, NULL);
	send_all(fd, &byte, 1);
	report("of the handler's", recv(other_fd, &byte, 1, 0));
	say("the byte: %c", byte);
	close(fd);
	close(other_fd);
	finish_child("one", one.child);
	finish_child("other", other.child);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	must("pipe", pipe(go));
	for (enum style style = OWN; style < STYLES; style++) {
		say("%s: all at once", style_names[style]);
		rounds(style);
		for (long restart = 0; restart < 2; restart++) {
			say("a signal%s at the server", restart ? ", SA_RESTART," : "");
			talk(style, interrupted, late, restart);
			say("a signal%s at the client", restart ? ", SA_RESTART," : "");
			talk(style, late, interrupted, restart);
		}
		say("a signal in poll at the server");
		talk(style, interrupted_poll, late, 0);
		say("a signal in poll at the client");
		talk(style, late, interrupted_poll, 0);
		say("shut meanwhile at the server");
		talk(style, shut_meanwhile, sees_end, 0);
		say("shut meanwhile at the client");
		talk(style, sees_end, shut_meanwhile, 0);
		say("a handler's first call");
		handler_first(style);
	}
	return 0;
}

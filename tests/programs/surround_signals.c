/* signal-safety(7): handlers of SIGALRM and SIGPROF that come all the time send, receive, wait and change sets, while the thread that they
 * interrupt does the same with other sockets and with the same set, and another thread wakes both. Nothing hangs, nothing is lost.
 * Such a call may give EAGAIN: see COMPATIBILITY. */
#include "epoll.h"

#define RUN_MS 2500
#define OFTEN_US 53

static struct pair mine, handlers, member, turned, watched;
static int shared_set;
static volatile uint64_t handled, main_turns;
static volatile uint64_t handler_sent, handler_got, main_sent, main_got;
static volatile bool stop;
static int listener;
static bool connects;

static void expected(const char *what, long result) {
	if (result >= 0 || errno == EAGAIN || errno == EINTR || errno == ENOENT || errno == EEXIST) return;
	say("FAILED %s: %s", what, strerrorname_np(errno));
	_exit(1);
}

/* A slow machine must come to something between two handlers too: the one of SIGALRM asks for the next itself. */
static void ask_for_alarm(int microseconds) {
	struct itimerval once = {.it_value = {0, microseconds}};
	must("ITIMER_REAL", setitimer(ITIMER_REAL, &once, NULL));
}

static void handler(int number) {
	int error = errno;
	struct epoll_event events[4], event = {.events = EPOLLIN, .data.u64 = 't'};
	char bytes[64];
	handled++;
	long sent = send(handlers.client, "handler", 7, MSG_DONTWAIT | MSG_NOSIGNAL);
	expected("send in handler", sent);
	if (sent > 0) handler_sent += (uint64_t)sent;
	long got = recv(handlers.server, bytes, sizeof bytes, MSG_DONTWAIT);
	expected("recv in handler", got);
	if (got > 0) handler_got += (uint64_t)got;
	expected("epoll_wait in handler", epoll_wait(shared_set, events, 4, 0));
	switch (handled % 4) {
	case 0: expected("ADD in handler", epoll_ctl(shared_set, EPOLL_CTL_ADD, turned.server, &event)); break;
	case 1: expected("MOD in handler", epoll_ctl(shared_set, EPOLL_CTL_MOD, turned.server, &event)); break;
	case 2: expected("DEL in handler", epoll_ctl(shared_set, EPOLL_CTL_DEL, turned.server, NULL)); break;
	case 3: {
		struct pollfd two[2] = {{.fd = handlers.server, .events = POLLIN}, {.fd = mine.server, .events = POLLIN}};
		expected("poll in handler", poll(two, 2, handled % 16 == 3));
		break;
	}
	}
	if (connects && handled % 64 == 0) {
		int client = socket(local.storage.ss_family, SOCK_STREAM, 0);
		if (client >= 0) {
			struct address name = {.length = sizeof name.storage};
			getsockname(listener, sockaddr_of(&name), &name.length);
			if (!connect(client, sockaddr_of(&name), name.length)) {
				int server = accept(listener, NULL, NULL);
				if (server >= 0) close(server);
			}
			close(client);
		}
	}
	if (number == SIGALRM) ask_for_alarm(OFTEN_US);
	errno = error;
}

/* Makes the members of the set busy, and waits in it. */
static void *other_thread(void *context) {
	(void)context;
	struct epoll_event events[4];
	char bytes[256];
	while (!stop) {
		send(member.client, "m", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		send(turned.client, "t", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		send(watched.client, "w", 1, MSG_DONTWAIT | MSG_NOSIGNAL);
		int found = epoll_wait(shared_set, events, 4, 1);
		for (int i = 0; i < found; i++) {
			if (events[i].data.u64 == 't') recv(turned.server, bytes, sizeof bytes, MSG_DONTWAIT);
			if (events[i].data.u64 == 'm') recv(member.server, bytes, sizeof bytes, MSG_DONTWAIT);
		}
	}
	return NULL;
}

static void main_turn(void) {
	struct epoll_event events[4], event = {.events = EPOLLIN, .data.u64 = 'w'};
	char bytes[256];
	long sent = send(mine.client, "0123456789", 10, MSG_DONTWAIT | MSG_NOSIGNAL);
	expected("send", sent);
	if (sent > 0) main_sent += (uint64_t)sent;
	struct pollfd one = {.fd = mine.server, .events = POLLIN};
	expected("poll", poll(&one, 1, 1));
	long got = recv(mine.server, bytes, sizeof bytes, MSG_DONTWAIT);
	expected("recv", got);
	if (got > 0) main_got += (uint64_t)got;
	expected("epoll_wait", epoll_wait(shared_set, events, 4, main_turns % 8 == 0));
	expected("recv of a member", recv(member.server, bytes, sizeof bytes, MSG_DONTWAIT));
	expected("DEL", epoll_ctl(shared_set, EPOLL_CTL_DEL, watched.server, NULL));
	expected("ADD", epoll_ctl(shared_set, EPOLL_CTL_ADD, watched.server, &event));
	expected("recv of a watched one", recv(watched.server, bytes, sizeof bytes, MSG_DONTWAIT));
	main_turns++;
}

static void storm(int microseconds) {
	struct itimerval often = {{0, microseconds}, {0, microseconds}};
	ask_for_alarm(microseconds);
	must("ITIMER_PROF", setitimer(ITIMER_PROF, &often, NULL));
}

/* What is on its way still arrives, so that all of it is accounted for. */
static uint64_t rest(struct pair both, uint64_t sent, uint64_t got) {
	char bytes[4096];
	while (got < sent) {
		long more = recv(both.server, bytes, sizeof bytes, 0);
		if (more <= 0) break;
		got += (uint64_t)more;
	}
	return got;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	connects = argument(1, 0);
	listener = new_listener(0, 64);
	struct pair *pairs[] = {&mine, &handlers, &member, &turned, &watched};
	for (size_t i = 0; i < COUNT(pairs); i++) *pairs[i] = connect_pair(listener);
	shared_set = new_set();
	add(shared_set, member.server, EPOLLIN, 'm');
	add(shared_set, watched.server, EPOLLIN, 'w');
	alarm(0);
	sigset_t both_signals, before;
	sigemptyset(&both_signals);
	sigaddset(&both_signals, SIGALRM);
	sigaddset(&both_signals, SIGPROF);
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART, .sa_mask = both_signals};
	must("SIGALRM", sigaction(SIGALRM, &action, NULL));
	must("SIGPROF", sigaction(SIGPROF, &action, NULL));
	pthread_sigmask(SIG_BLOCK, &both_signals, &before);
	pthread_t other = start_thread(other_thread, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	storm(OFTEN_US);
	int64_t until = now_us() + (int64_t)RUN_MS * 1000;
	while (now_us() < until) main_turn();
	pthread_sigmask(SIG_BLOCK, &both_signals, NULL);
	storm(0);
	stop = true;
	pthread_join(other, NULL);
	say("many of each: %s", yes_no(handled > 100 && main_turns > 100));
	fprintf(stderr, "handled %lu, turns %lu, bytes of handlers %lu, of the thread %lu\n", handled, main_turns, handler_sent, main_sent);
	say("main: all arrived: %s", yes_no(rest(mine, main_sent, main_got) == main_sent));
	say("handlers: all arrived: %s", yes_no(rest(handlers, handler_sent, handler_got) == handler_sent));
	return 0;
}

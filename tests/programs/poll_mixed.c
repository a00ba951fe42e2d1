/* poll(2) over sockets, a pipe, an eventfd, a Unix socket pair and a file together: each is reported for itself, also when
 * only one kind is ready, and a wait for all of them is woken by each. */
#include "common.h"

enum { CLIENT, SERVER, LISTENER, PIPE, EVENT, LOCAL, FILE_, GONE, HOW_MANY };
static const char *names[HOW_MANY] = {"client", "server", "listener", "pipe", "eventfd", "unix", "file", "closed"};

static void look(const char *what, struct pollfd *all, int wait_ms) {
	int ready = poll(all, HOW_MANY, wait_ms);
	char line[256] = "";
	for (int i = 0; i < HOW_MANY; i++)
		if (all[i].revents) sprintf(line + strlen(line), " %s=%s", names[i], event_names(all[i].revents));
	say("%s: %d:%s", what, ready, line);
}

struct later {
	int fd, kind;
	struct address to;
};

static void *wake(void *context) {
	struct later *later = context;
	sleep_ms(100);
	uint64_t one = 1;
	switch (later->kind) {
	case LISTENER: must("connect", connect_to(later->fd, later->to)); break;
	case EVENT: must("write", write(later->fd, &one, sizeof one)); break;
	default: must("write", write(later->fd, "w", 1));
	}
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 4);
	struct pair both = connect_pair(listener);
	int pipes[2], unixes[2], event = eventfd(0, 0), gone = dup(0);
	must("pipe", pipe(pipes));
	must("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, unixes));
	close(gone);
	struct pollfd all[HOW_MANY] = {
		{.fd = both.client, .events = POLLIN}, {.fd = both.server, .events = POLLIN}, {.fd = listener, .events = POLLIN},
		{.fd = pipes[0], .events = POLLIN},    {.fd = event, .events = POLLIN},	      {.fd = unixes[0], .events = POLLIN},
		{.fd = -1},			       {.fd = -1}};
	look("quiet", all, 50);
	int late = new_socket(0);
	struct later wakers[] = {{both.client, SERVER, {0}},   {both.server, CLIENT, {0}}, {pipes[1], PIPE, {0}},
				 {event, EVENT, {0}},	       {unixes[1], LOCAL, {0}},	   {late, LISTENER, name_of(listener)}};
	uint64_t sink;
	for (size_t i = 0; i < COUNT(wakers); i++) {
		pthread_t thread = start_thread(wake, &wakers[i]);
		char what[32];
		snprintf(what, sizeof what, "woken by %s", names[wakers[i].kind]);
		look(what, all, -1);
		pthread_join(thread, NULL);
		if (wakers[i].kind != LISTENER) must("read", read(all[wakers[i].kind].fd, &sink, sizeof sink));
	}
	close(must("accept", accept(listener, NULL, NULL)));
	look("quiet again", all, 20);
	all[FILE_] = (struct pollfd){.fd = (int)must("open", open("/dev/null", O_RDONLY)), .events = POLLIN};
	all[GONE] = (struct pollfd){.fd = gone, .events = POLLIN};
	all[CLIENT].events = POLLOUT;
	look("file and closed number", all, -1);
	for (size_t i = 0; i < COUNT(wakers) - 1; i++) wake(&wakers[i]);
	wait_for(both.client, POLLIN);
	wait_for(both.server, POLLIN);
	look("all at once", all, -1);
	close(pipes[1]);
	close(unixes[1]);
	must("read", read(event, &sink, sizeof sink));
	look("pipe and unix ended", all, -1);
	return 0;
}

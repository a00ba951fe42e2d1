/* What a child does with its copies of the parent's sockets is nothing to the parent: however it closes them, or ends. fork(2): "The child
 * inherits copies of the parent's set of open file descriptors"; close(2): a connection ends with its last descriptor. And the child's own
 * sockets work at once. */
#include "process.h"
#include <sys/mman.h>
#include <sys/syscall.h>

static int listener;
static struct pair both;

static void by_close(void *unused) {
	(void)unused;
	say("close: %d %d %d", close(both.client), close(both.server), close(listener));
}

static void by_range(void *unused) {
	(void)unused;
	say("close_range: %d", close_range(3, ~0u, 0));
	say("own sockets work: %s", yes_no(own_sockets_work()));
}

static void by_dup2(void *unused) {
	(void)unused;
	int null = (int)must("open", open("/dev/null", O_RDWR));
	say("dup2 over them: %s", yes_no(dup2(null, both.client) == both.client && dup2(null, both.server) == both.server));
	say("dup3 over the listener: %s", yes_no(dup3(null, listener, O_CLOEXEC) == listener));
	say("they are /dev/null: %s", yes_no(read(both.client, &null, 1) == 0 && write(both.server, "x", 1) == 1));
}

static void by_system_call(void *unused) {
	(void)unused;
	say("syscall(SYS_close): %ld %ld", syscall(SYS_close, both.client), syscall(SYS_close, both.server));
}

static void by_stdio(void *unused) {
	(void)unused;
	FILE *stream = fdopen(both.client, "r");
	say("fclose: %d", stream ? fclose(stream) : -1);
}

static void by_exit(void *unused) { (void)unused; }

static void by_quick_exit(void *unused) {
	(void)unused;
	_exit(3);
}

static void by_exec(void *unused) {
	(void)unused;
	execl("/bin/true", "true", (char *)NULL);
	_exit(99);
}

static void by_crash(void *unused) {
	(void)unused;
	raise(SIGKILL);
}

static void by_using_own(void *unused) {
	(void)unused;
	say("own sockets work: %s", yes_no(own_sockets_work()));
	int set = (int)must("eventfd", eventfd(0, 0)), fd = new_socket(SOCK_NONBLOCK);
	int own = new_listener(0, 3);
	report("connect", connect_to(fd, name_of(own)));
	struct pollfd polled[] = {{.fd = set, .events = POLLIN}, {.fd = own, .events = POLLIN}};
	say("poll: %d", poll(polled, 2, ARRIVAL_MS));
	say("the listener: %s", event_names(polled[1].revents));
	int server = (int)must("accept", accept(own, NULL, NULL));
	set_nonblocking(fd, false);
	wait_for(fd, POLLOUT);
	send_pattern(fd, 1000, 1000, 1);
	say("received: %llu", (unsigned long long)recv_pattern(server, 1000, 1000, 1));
}

static void of_a_grandchild(void *unused) {
	(void)unused;
	struct pair mine = new_pair();
	ended("grandchild", child_of(by_using_own, NULL));
	ended("grandchild", child_of(by_range, NULL));
	say("the child's own connection: %s", yes_no(moves(mine, 5)));
}

/* Memory as of a fork, and no handler of pthread_atfork's has run. */
static void past_handlers(const char *what, pid_t child) {
	if (child == 0) {
		close(both.client);
		bool works = own_sockets_work();
		exit(works ? 0 : 1);
	}
	ended(what, (pid_t)must(what, child));
	say("the parent's connection: %s", yes_no(moves(both, 9)));
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*work)(void *);
	} ways[] = {{"close", by_close},	 {"close_range", by_range}, {"dup2", by_dup2},	{"system call", by_system_call},
		    {"fclose", by_stdio},	 {"exit", by_exit},	    {"_exit", by_quick_exit}, {"exec", by_exec},
		    {"killed", by_crash}, {"sockets of its own", by_using_own}, {"grandchildren", of_a_grandchild}};
	begin(argc, argv);
	listener = new_listener(0, 8);
	both = connect_pair(listener);
	say("the parent's connection: %s", yes_no(moves(both, 1)));
	for (size_t i = 0; i < COUNT(ways); i++) {
		say("-- %s", ways[i].name);
		ended("child", child_of(ways[i].work, NULL));
		say("the parent's connection: %s", yes_no(moves(both, 2)));
		/* After fork clients wait until the listener is looked at. */
		events_now(listener, POLLIN);
		struct pair another = connect_pair(listener);
		say("another one: %s", yes_no(moves(another, 4)));
		close_pair(another);
	}
	say("-- past pthread_atfork");
	fflush(stdout);
	past_handlers("_Fork", _Fork());
#ifdef SYS_fork
	past_handlers("SYS_fork", (pid_t)syscall(SYS_fork));
#else
	past_handlers("SYS_fork", (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
#endif
	past_handlers("SYS_clone", (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
	/* The peer sees the end when the last copy is closed, not before. */
	shutdown(both.client, SHUT_WR);
	say("the end: %zu", recv_all(both.server, argv, 0) + (size_t)recv(both.server, &(char){0}, 1, 0));
	return 0;
}

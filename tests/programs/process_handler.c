/* A signal handler forks in the middle of a call that waits, and the child comes back from the handler: its call ends with EINTR, as the
 * parent's does, and it can go on with sockets of its own. signal(7): calls that a handler without SA_RESTART interrupts give EINTR. */
#include "process.h"
#include <sys/epoll.h>

static pid_t parent;

static void handler(int signal) {
	(void)signal;
	int error = errno;
	fork();
	errno = error;
}

static int listener, set;
static struct pair both;

static long read_it(void) { return read(both.server, &(char){0}, 1); }
static long receive_it(void) { return recv(both.server, &(char){0}, 1, 0); }
static long accept_one(void) { return accept(listener, NULL, NULL); }
static long poll_it(void) { return poll(&(struct pollfd){.fd = both.server, .events = POLLIN}, 1, -1); }

static long poll_two(void) {
	struct pollfd two[] = {{.fd = both.server, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
	return poll(two, 2, 20000);
}

static long select_it(void) {
	fd_set in;
	FD_ZERO(&in);
	FD_SET(both.server, &in);
	return select(both.server + 1, &in, NULL, NULL, NULL);
}

static long wait_in_set(void) { return epoll_wait(set, &(struct epoll_event){0}, 1, -1); }

/* A signal for this process after a while, again and again: the first may come before the call. */
static pid_t signal_later(void) {
	pid_t sender = (pid_t)must("fork", fork());
	if (sender == 0) {
		usleep(150000);
		kill(parent, SIGUSR1);
		_exit(0);
	}
	return sender;
}

static void interrupted(const char *name, long (*call)(void)) {
	fflush(stdout);
	pid_t sender = signal_later();
	long result = call();
	int error = errno;
	if (getpid() != parent) {
		/* No word of the child's own comes between the parent's. */
		signal(SIGUSR1, SIG_DFL);
		bool right = result == -1 && error == EINTR;
		close_pair(both);
		close(listener);
		close(set);
		exit(right && own_sockets_work() ? 0 : 1);
	}
	int status = 0, good = 0, children = 0;
	for (pid_t child; (child = wait(&status)) > 0;)
		if (child != sender) {
			children++;
			good += WIFEXITED(status) && WEXITSTATUS(status) == 0;
		}
	errno = error;
	report(name, result);
	say("%s: children that came back from it: %d of %d", name, good, children);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	parent = getpid();
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGUSR1, &action, NULL);
	listener = new_listener(0, 8);
	both = connect_pair(listener);
	set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.fd = both.server};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, both.server, &event));
	interrupted("read", read_it);
	interrupted("recv", receive_it);
	interrupted("accept", accept_one);
	interrupted("poll", poll_it);
	interrupted("poll of two", poll_two);
	interrupted("select", select_it);
	interrupted("epoll_wait", wait_in_set);
	say("the connection: %s", yes_no(moves(both, 3)));
	return 0;
}

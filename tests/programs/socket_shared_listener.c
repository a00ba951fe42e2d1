/* Listeners that somebody else serves. fork(2): "The child inherits copies of the parent's set of open file descriptors"; of servers
 * that fork beforehand the children accept. epoll(7): a listening socket in a set is readable when a connection waits. */
#include "common.h"
#include <sys/epoll.h>
#include <sys/wait.h>

static void echo_one(int fd) {
	char byte;
	if (recv_all(fd, &byte, 1) == 1) send_all(fd, &byte, 1);
	close(fd);
}

static void ask(const char *what, int fd) {
	char byte = 'x';
	send_all(fd, &byte, 1);
	byte = 0;
	report(what, (long)recv_all(fd, &byte, 1));
	say("%s: the same byte: %s", what, yes_no(byte == 'x'));
	close(fd);
}

static void children_accept(void) {
	int listener = new_listener(0, 8);
	enum { CHILDREN = 3 };
	for (int child = 0; child < CHILDREN; child++)
		if (must("fork", fork()) == 0) {
			echo_one((int)must("accept", accept(listener, NULL, NULL)));
			_exit(0);
		}
	for (int client = 0; client < CHILDREN; client++) {
		int fd = new_socket(0);
		report("connect to a child", connect_to(fd, name_of(listener)));
		ask("a child answers", fd);
	}
	int status = 0;
	for (int child = 0; child < CHILDREN; child++) must("wait", wait(&status));
	close(listener);
}

static void *connect_and_ask(void *context) {
	int fd = new_socket(0);
	must("connect to the set", connect_to(fd, *(struct address *)context));
	ask("the set answers", fd);
	return NULL;
}

static void epoll_accepts(void) {
	int listener = new_listener(SOCK_NONBLOCK, 8), set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, listener, &event));
	struct address address = name_of(listener);
	pthread_t client = start_thread(connect_and_ask, &address);
	report("epoll_wait", epoll_wait(set, &event, 1, 5000));
	say("the listener: %s", yes_no(event.data.fd == listener && event.events == EPOLLIN));
	echo_one((int)must("accept", accept(listener, NULL, NULL)));
	pthread_join(client, NULL);
	close(listener);
	close(set);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	children_accept();
	setvbuf(stdout, NULL, _IONBF, 0);
	epoll_accepts();
	return 0;
}

/* B05: put into a set before connect, bind or listen: the member stays, whatever its socket becomes. */
#include "epoll.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8), set = new_set();
	int client = new_socket(SOCK_NONBLOCK);
	add(set, client, EPOLLIN | EPOLLOUT, 'c');
	show("fresh", set, 0);
	report("connect", connect_to(client, name_of(listener)));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	wait_for(client, POLLOUT);
	show("connected", set, ARRIVAL_MS);
	modify(set, client, EPOLLIN, 'C');
	show("asked for data", set, 20);
	send_all(server, "a", 1);
	show("data", set, ARRIVAL_MS);
	report("put in again", control(set, EPOLL_CTL_ADD, client, EPOLLIN, 'c'));
	close(client);
	close(server);
	show("closed", set, 20);

	/* Refused: over a fabric nobody listens, and in the kernel neither. */
	client = new_socket(SOCK_NONBLOCK);
	add(set, client, EPOLLIN | EPOLLOUT, 'r');
	struct address closed = closed_port();
	report("connect", connect_to(client, closed));
	wait_for(client, POLLERR | POLLHUP);
	show("refused", set, ARRIVAL_MS);
	modify(set, client, EPOLLIN, 'R');
	show("refused, again", set, ARRIVAL_MS);
	int error = 0;
	socklen_t length = sizeof error;
	must("getsockopt", getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &length));
	say("SO_ERROR: %s", strerrorname_np(error));
	show("error taken", set, 0);
	drop(set, client);
	close(client);

	int late = new_socket(0);
	add(set, late, EPOLLIN, 'l');
	must("bind", bind_to(late, local));
	must("listen", listen(late, 8));
	modify(set, late, EPOLLIN, 'L');
	show("listens", set, 20);
	client = new_socket(0);
	must("connect", connect_to(client, name_of(late)));
	show("one waits", set, ARRIVAL_MS);
	server = (int)must("accept", accept(late, NULL, NULL));
	show("taken", set, 0);
	send_all(client, "z", 1);
	wait_bytes(server, 1);
	close(client);
	close(server);
	close(late);
	show("closed", set, 20);
	return 0;
}

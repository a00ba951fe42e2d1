/* accept(2): "On Linux, the new socket returned by accept() does not inherit file status flags such as O_NONBLOCK";
 * accept4 sets exactly the flags given. accept on a nonblocking listener without a connection: EAGAIN. Case B09. */
#include "common.h"

static void show_flags(const char *what, int fd) {
	say("%s: nonblocking %s, close-on-exec %s", what, yes_no(is_nonblocking(fd)), yes_no(is_cloexec(fd)));
}

static void *send_later(void *context) {
	sleep_ms(200);
	send_all(*(int *)context, "x", 1);
	return NULL;
}

static void accept_with(const char *what, int listener, int flags, bool plain) {
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(listener)));
	wait_for(listener, POLLIN);
	struct address peer = {.length = sizeof peer.storage};
	int server = plain ? accept(listener, sockaddr_of(&peer), &peer.length)
			   : accept4(listener, sockaddr_of(&peer), &peer.length, flags);
	report_descriptor(what, server);
	show_flags(what, server);
	struct address name = name_of(client);
	say("%s: peer is the client: %s", what,
	    yes_no(peer.length == name.length && *port_of(&peer) == *port_of(&name) &&
		   peer.storage.ss_family == name.storage.ss_family));
	char byte = 0;
	if (is_nonblocking(server)) {
		report("recv with nothing there", recv(server, &byte, 1, 0));
	} else {
		pthread_t sender = start_thread(send_later, &client);
		report("recv waits for the peer", recv(server, &byte, 1, 0));
		pthread_join(sender, NULL);
	}
	close(client);
	close(server);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(SOCK_NONBLOCK | SOCK_CLOEXEC, 8);
	show_flags("listener", listener);
	report("accept with nobody there", accept(listener, NULL, NULL));
	report("accept4 with nobody there", accept4(listener, NULL, NULL, SOCK_NONBLOCK));
	accept_with("accept", listener, 0, true);
	accept_with("accept4 0", listener, 0, false);
	accept_with("accept4 SOCK_NONBLOCK", listener, SOCK_NONBLOCK, false);
	accept_with("accept4 SOCK_CLOEXEC", listener, SOCK_CLOEXEC, false);
	accept_with("accept4 both", listener, SOCK_NONBLOCK | SOCK_CLOEXEC, false);
	report("accept4 with unknown flags", accept4(listener, NULL, NULL, 1));
	report("accept after that", accept(listener, NULL, NULL));
	close(listener);

	int blocking = new_listener(0, 8);
	accept_with("blocking listener, accept4 SOCK_NONBLOCK", blocking, SOCK_NONBLOCK, false);
	show_flags("blocking listener", blocking);
	accept_with("blocking listener, accept", blocking, 0, true);
	return 0;
}

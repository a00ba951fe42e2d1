/* What belongs to the descriptor, and to what it stands for, is the same before the first call and after it: O_NONBLOCK and FD_CLOEXEC as
 * socket(2) and accept4(2) gave them, the names (getsockname(2), getpeername(2)), the lowest free number, duplicates of all kinds (dup(2):
 * "they refer to the same open file description [...]. The two file descriptors do not share file descriptor flags"), and options. */
#include "deferred.h"

static struct address server_address;

static bool same_name(struct address one, struct address other) {
	return one.length == other.length && one.storage.ss_family == other.storage.ss_family && *port_of(&one) == *port_of(&other) &&
	       !memcmp(&one.storage, &other.storage, one.length);
}

static struct address peer_of(int fd) {
	struct address name = {.length = sizeof name.storage};
	must("getpeername", getpeername(fd, sockaddr_of(&name), &name.length));
	return name;
}

static void show_flags(const char *what, int fd) {
	struct stat status;
	must("fstat", fstat(fd, &status));
	say("%s: nonblocking %s, close-on-exec %s, a socket %s", what, yes_no(is_nonblocking(fd)), yes_no(is_cloexec(fd)),
	    yes_no(S_ISSOCK(status.st_mode)));
}

/* Eight bytes each way. */
static void exchange(const char *what, int out, int in) {
	char block[8] = "";
	wait_for(out, POLLOUT);
	send_all(out, "12345678", 8);
	wait_bytes(in, 8);
	say("%s: %s", what, yes_no(recv_all(in, block, 8) == 8 && !memcmp(block, "12345678", 8)));
}

static void with_names(int fd, long unused) {
	(void)unused;
	struct address own = name_of(fd), peer = peer_of(fd);
	int spare = (int)must("dup", dup(0));
	close(spare);
	exchange("the first", fd, fd);
	say("same names: %s", yes_no(same_name(own, name_of(fd)) && same_name(peer, peer_of(fd))));
	say("one of them is the server's: %s", yes_no(*port_of(&own) == *port_of(&server_address) || same_name(peer, server_address)));
	int again = (int)must("dup", dup(0));
	say("the lowest free number is what it was: %s", yes_no(again == spare));
	close(again);
	exchange("the last", fd, fd);
	must("shutdown", shutdown(fd, SHUT_WR));
	report("the end", (long)recv_all(fd, &own, 1));
}

/* A peer that echoes what comes, by eights. */
static void echo_eights(int fd, long unused) {
	(void)unused;
	echo(fd, 8);
}

static void names(enum style style) {
	struct server server = start_server(style, 1, with_names, 0);
	server_address = server.address;
	int fd = connect_to_server(&server);
	say("%s: the server's names", style_names[style]);
	echo_eights(fd, 0);
	close(fd);
	finish_child("server", server.child);
	server = start_server(style, 1, echo_eights, 0);
	server_address = server.address;
	fd = connect_to_server(&server);
	say("%s: the client's names", style_names[style]);
	with_names(fd, 0);
	close(fd);
	finish_child("server", server.child);
}

static int accept_flags;

/* The server accepts with flags, in a child. */
static void flags(int socket_flags, int of_accept) {
	accept_flags = of_accept;
	int listener = new_listener(0, 4);
	struct address address = name_of(listener);
	struct child child;
	if (begin_child(&child)) {
		int fd = (int)must("accept4", accept4(listener, NULL, NULL, accept_flags));
		close(listener);
		show_flags("before", fd);
		char byte;
		if (is_nonblocking(fd)) {
			report("nothing there", recv(fd, &byte, 1, 0));
			wait_for(fd, POLLOUT);
			send_all(fd, "g", 1);
			wait_for(fd, POLLIN);
		} else {
			send_all(fd, "g", 1);
		}
		report("recv", recv(fd, &byte, 1, 0));
		show_flags("after", fd);
		set_nonblocking(fd, !is_nonblocking(fd));
		show_flags("changed", fd);
		end_child();
	}
	close(listener);
	int fd = new_socket(socket_flags);
	if (connect_to(fd, address) < 0 && errno != EINPROGRESS) die("connect");
	wait_for(fd, POLLOUT);
	report_socket_error("connected", fd);
	show_flags("client before", fd);
	char byte;
	wait_for(fd, POLLIN);
	report("recv", recv(fd, &byte, 1, 0));
	report("send", send(fd, "x", 1, 0));
	show_flags("client after", fd);
	wait_for(fd, POLLRDHUP);
	close(fd);
	finish_child("server", child);
}

enum duplicating { DUP, DUP2, DUP3, FCNTL, FCNTL_CLOEXEC, DUPLICATINGS };

static const char *const dup_names[] = {"dup", "dup2", "dup3 O_CLOEXEC", "F_DUPFD", "F_DUPFD_CLOEXEC"};

static int duplicate(int fd, enum duplicating how) {
	switch (how) {
	case DUP: return dup(fd);
	case DUP2: return dup2(fd, 200);
	case DUP3: return dup3(fd, 201, O_CLOEXEC);
	case FCNTL: return fcntl(fd, F_DUPFD, 300);
	default: return fcntl(fd, F_DUPFD_CLOEXEC, 300);
	}
}

/* The duplicate is made before the first call; that is made on the one or the other, and either may be closed first. */
static void use_duplicate(int fd, enum duplicating how, bool original_first) {
	int copy = (int)must("duplicate", duplicate(fd, how)), one = original_first ? fd : copy, other = original_first ? copy : fd;
	exchange("one writes, the other reads", one, other);
	set_nonblocking(one, true);
	say("O_NONBLOCK is shared: %s, FD_CLOEXEC is not: %s", yes_no(is_nonblocking(other)), yes_no(is_cloexec(copy) && !is_cloexec(fd)));
	set_nonblocking(other, false);
	close(one);
	exchange("without the one", other, other);
	int again = (int)must("dup", dup(other));
	exchange("with a new one", again, other);
	close(other);
	exchange("with that alone", again, again);
	close(again);
}

static void duplicates(int fd, long number) {
	use_duplicate(fd, (enum duplicating)(number >> 1), number & 1);
	/* the caller closes fd, which is closed */
	must("dup2", dup2(STDIN_FILENO, fd));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (enum style style = OWN; style < STYLES; style++) names(style);
	int both = SOCK_NONBLOCK | SOCK_CLOEXEC, all[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, both};
	for (size_t i = 0; i < COUNT(all); i++) {
		say("flags %zu", i);
		flags(all[i], all[COUNT(all) - 1 - i]);
	}
	for (long number = 0; number < 2 * DUPLICATINGS; number++) {
		enum style style = (enum style)(number % STYLES);
		say("%s of the server's (%s), the %s first", dup_names[number >> 1], style_names[style], number & 1 ? "original" : "copy");
		talk(style, duplicates, echo_eights, number);
		say("%s of the client's, the %s first", dup_names[number >> 1], number & 1 ? "original" : "copy");
		talk(style, echo_eights, duplicates, number);
	}
	return 0;
}

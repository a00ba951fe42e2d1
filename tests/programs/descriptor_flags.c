/* fcntl(2) on sockets: F_GETFL tells O_RDWR and the status flags, F_SETFL ignores the rest, F_GETFD and F_SETFD,
 * SOCK_NONBLOCK and SOCK_CLOEXEC of socket(2); FIONBIO and FIOCLEX of ioctl_tty(2) and FIONREAD of tcp(7). Case B16. */
#include "common.h"

static void show(const char *what, int fd) {
	int flags = (int)must("F_GETFL", fcntl(fd, F_GETFL));
	say("%s: read and write %s, nonblocking %s, append %s, close-on-exec %s", what, yes_no((flags & O_ACCMODE) == O_RDWR),
	    yes_no(flags & O_NONBLOCK), yes_no(flags & O_APPEND), yes_no(is_cloexec(fd)));
}

static void queued(const char *what, int fd) {
	int count = -1;
	if (ioctl(fd, FIONREAD, &count) < 0)
		say("%s: FIONREAD %s", what, strerrorname_np(errno));
	else
		say("%s: FIONREAD %d", what, count);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	show("plain", new_socket(0));
	show("SOCK_NONBLOCK", new_socket(SOCK_NONBLOCK));
	show("SOCK_CLOEXEC", new_socket(SOCK_CLOEXEC));
	show("both", new_socket(SOCK_NONBLOCK | SOCK_CLOEXEC));
	int fresh = new_socket(0);
	queued("fresh", fresh);
	int listener = new_listener(0, 4);
	queued("listener", listener);

	struct pair both = connect_pair(listener);
	show("connected", both.client);
	report("F_SETFL everything", fcntl(both.client, F_SETFL, O_NONBLOCK | O_APPEND | O_WRONLY));
	show("connected", both.client);
	report("F_SETFL nothing", fcntl(both.client, F_SETFL, 0));
	show("connected", both.client);
	report("F_SETFD", fcntl(both.client, F_SETFD, FD_CLOEXEC));
	show("connected", both.client);
	report("unknown command", fcntl(both.client, 9999, 0));

	int on = 1, off = 0, second = dup(both.server);
	char text[100];
	report("FIONBIO on", ioctl(both.server, FIONBIO, &on));
	show("server", both.server);
	show("its copy", second);
	report("recv", recv(second, text, 1, 0));
	report("FIONBIO off", ioctl(second, FIONBIO, &off));
	show("server", both.server);
	report("FIOCLEX", ioctl(both.server, FIOCLEX));
	show("server", both.server);
	show("its copy", second);
	report("FIONCLEX", ioctl(both.server, FIONCLEX));
	show("server", both.server);

	queued("nothing sent", both.server);
	send_all(both.client, text, 60);
	send_all(both.client, text, 40);
	wait_bytes(both.server, 100);
	queued("100 sent", both.server);
	must("recv", recv(both.server, text, 30, 0));
	queued("30 read", both.server);
	must("recv", recv(both.server, text, 70, 0));
	queued("all read", both.server);
	close(both.client);
	wait_for(both.server, POLLRDHUP);
	queued("peer closed", both.server);
	report("unknown ioctl", ioctl(both.server, 0x12345678, &on));
	return 0;
}

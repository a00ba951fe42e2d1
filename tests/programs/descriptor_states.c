/* fcntl(2), F_GETFL and F_GETFD in every state of a socket, and F_SETFL with flags that a socket has not: O_APPEND is kept, O_ASYNC and
 * O_DIRECT are judged, access modes and creation flags are ignored. Case B09. */
#include "states.h"

static void look(const char *what, int fd) {
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0) {
		say("%s: %s", what, strerrorname_np(errno));
		return;
	}
	int known = O_ACCMODE | O_NONBLOCK | O_APPEND | O_ASYNC | O_LARGEFILE;
	say("%s: %s%s%s%s%s, fd flags %d", what, (flags & O_ACCMODE) == O_RDWR ? "O_RDWR" : "not O_RDWR", flags & O_NONBLOCK ? "|O_NONBLOCK" : "",
	    flags & O_APPEND ? "|O_APPEND" : "", flags & O_ASYNC ? "|O_ASYNC" : "", flags & ~known ? " and others" : "", fcntl(fd, F_GETFD));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (int state = 0; state < STATES; state++) {
		struct stand stand = stand_in(state);
		say("%s", state_names[state]);
		look("  at first", stand.fd);
		report("  F_SETFL O_NONBLOCK", fcntl(stand.fd, F_SETFL, O_NONBLOCK));
		look("  nonblocking", stand.fd);
		report("  F_SETFL O_APPEND", fcntl(stand.fd, F_SETFL, O_APPEND | O_RDONLY | O_CREAT));
		look("  appending", stand.fd);
		report("  F_SETFL O_DIRECT", fcntl(stand.fd, F_SETFL, O_DIRECT));
		int on = 1, off = 0;
		report("  FIONBIO", ioctl(stand.fd, FIONBIO, &on));
		look("  nonblocking by FIONBIO", stand.fd);
		report("  FIONBIO off", ioctl(stand.fd, FIONBIO, &off));
		report("  FIOCLEX", ioctl(stand.fd, FIOCLEX));
		look("  blocking, close on exec", stand.fd);
		report("  FIONBIO of nothing", ioctl(stand.fd, FIONBIO, NULL));
		report("  F_SETFL 0", fcntl(stand.fd, F_SETFL, 0));
		report("  an unknown command", fcntl(stand.fd, 9999, 0));
		report("  an unknown request", ioctl(stand.fd, 0x12345678, NULL));
		drop(stand);
	}
	return 0;
}

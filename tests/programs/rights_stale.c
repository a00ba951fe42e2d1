/* Numbers of sockets that were closed in a way which no library sees, and under which another process's descriptor comes then: what it is counts,
 * not what was there. unix(7), SCM_RIGHTS; pidfd_getfd(2). */
#include "rights.h"
#include <sys/pidfd.h>

/* What was there is a connection in use; then a pipe's writing end is there. */
static void comes(const char *how, int channel, enum way way, int pipe_end) {
	struct pair both = new_pair();
	send_all(both.client, "abc", 3);
	char bytes[8];
	if (recv_all(both.server, bytes, 3) != 3) die("abc");
	/* Where the listener was. */
	int filler = (int)must("pidfd_open", pidfd_open(getpid(), 0)), number = both.client, came = -1;
	must("close", unseen(SYS_close, number, 0, 0));
	if (way < WAYS) {
		int ends[1] = {pipe_end};
		if (send_rights(channel, way, ends, 1) != 1) die("send");
		receive_rights(channel + 1, way, &came, 1);
	} else {
		came = (int)must("pidfd_getfd", pidfd_getfd(filler, pipe_end, 0));
	}
	close(filler);
	say("%s: under the same number: %s", how, yes_no(came == number));
	struct stat status;
	must("fstat", fstat(came, &status));
	report("  written", write(came, "pipe", 4));
	report("  sent", send(came, "x", 1, MSG_NOSIGNAL));
	say("  a pipe: %s, blocks: %s", yes_no(S_ISFIFO(status.st_mode)), yes_no(!is_nonblocking(came)));
	struct pollfd one = {.fd = came, .events = POLLOUT | POLLIN};
	report("  poll", poll(&one, 1, 0));
	say("  events: %s", event_names(one.revents));
	close(came);
	close(both.server);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int ends[2], pipes[2];
	must("pipe", pipe2(pipes, O_CLOEXEC));
	channel_pair(ends);
	if (ends[1] != ends[0] + 1) die("numbers");
	for (enum way way = ONE; way <= WAYS; way++) comes(way < WAYS ? way_names[way] : "pidfd_getfd", ends[0], way, pipes[1]);
	char bytes[64];
	ssize_t got = read(pipes[0], bytes, sizeof bytes);
	say("the pipe has had %zd bytes", got);
	return 0;
}

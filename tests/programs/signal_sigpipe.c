/* send(2), write(2), sendfile(2): EPIPE and one SIGPIPE, to the thread that calls, from every call that writes, and none with MSG_NOSIGNAL.
 * sendmmsg counts what went before. */
#include "common.h"
#include <sys/sendfile.h>

static volatile sig_atomic_t handled;
static volatile pid_t handled_by;
static void handler(int number) {
	(void)number;
	handled++;
	handled_by = gettid();
}

static int fd, file;
static char text[] = "abc";
static struct iovec vector[2] = {{text, 1}, {text + 1, 2}};
static struct msghdr message = {.msg_iov = vector, .msg_iovlen = 2};

static long do_send(void) { return send(fd, text, 3, 0); }
static long do_send_quietly(void) { return send(fd, text, 3, MSG_NOSIGNAL); }
static long do_send_nothing(void) { return send(fd, text, 0, 0); }
static long do_send_more(void) { return send(fd, text, 3, MSG_MORE | MSG_DONTWAIT); }
static long do_sendto(void) { return sendto(fd, text, 3, 0, NULL, 0); }
static long do_sendto_quietly(void) { return sendto(fd, text, 3, MSG_NOSIGNAL, NULL, 0); }
static long do_sendmsg(void) { return sendmsg(fd, &message, 0); }
static long do_sendmsg_quietly(void) { return sendmsg(fd, &message, MSG_NOSIGNAL); }
static long do_sendmmsg(void) {
	struct mmsghdr several[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
	return sendmmsg(fd, several, 2, 0);
}
static long do_sendmmsg_quietly(void) {
	struct mmsghdr several[2] = {{.msg_hdr = message}, {.msg_hdr = message}};
	return sendmmsg(fd, several, 2, MSG_NOSIGNAL);
}
static long do_write(void) { return write(fd, text, 3); }
static long do_write_nothing(void) { return write(fd, text, 0); }
static long do_writev(void) { return writev(fd, vector, 2); }
static long do_pwritev2(void) { return pwritev2(fd, vector, 2, -1, 0); }
static long do_sendfile(void) {
	off_t offset = 0;
	return sendfile(fd, file, &offset, 3);
}

static void calls(const char *how) {
	static const struct {
		const char *name;
		long (*call)(void);
	} all[] = {{"send", do_send}, {"send MSG_NOSIGNAL", do_send_quietly}, {"send of nothing", do_send_nothing}, {"send MSG_MORE", do_send_more},
		   {"sendto", do_sendto}, {"sendto MSG_NOSIGNAL", do_sendto_quietly}, {"sendmsg", do_sendmsg},
		   {"sendmsg MSG_NOSIGNAL", do_sendmsg_quietly}, {"sendmmsg", do_sendmmsg}, {"sendmmsg MSG_NOSIGNAL", do_sendmmsg_quietly},
		   {"write", do_write}, {"write of nothing", do_write_nothing}, {"writev", do_writev}, {"pwritev2", do_pwritev2},
		   {"sendfile", do_sendfile}};
	for (size_t i = 0; i < COUNT(all); i++) {
		handled = 0;
		long result = all[i].call();
		int error = errno;
		say("%s, %s: %ld %s, SIGPIPE %d%s", how, all[i].name, result, result < 0 ? strerrorname_np(error) : "", (int)handled,
		    handled && handled_by != gettid() ? " elsewhere" : "");
	}
}

static void *in_thread(void *unused) {
	calls("in a thread");
	return unused;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct sigaction action = {.sa_handler = handler};
	sigaction(SIGPIPE, &action, NULL);
	file = (int)must("open", open("/proc/self/exe", O_RDONLY));
	struct pair both = new_pair();
	fd = both.client;
	calls("connected");
	must("shutdown", shutdown(fd, SHUT_WR));
	calls("shut down");
	pthread_t thread = start_thread(in_thread, NULL);
	pthread_join(thread, NULL);
	close_pair(both);

	both = new_pair();
	fd = both.client;
	close(both.server);
	wait_for(fd, POLLRDHUP);
	must("first send after the end", do_send());
	wait_for(fd, POLLHUP);
	recv(fd, text, 1, 0); /* the error, where there is one */
	calls("reset");
	signal(SIGPIPE, SIG_IGN);
	calls("ignored");
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, handler);
	calls("blocked");
	sigpending(&set);
	say("waits: %s", yes_no(sigismember(&set, SIGPIPE)));
	struct timespec none = {0, 0};
	sigemptyset(&set);
	sigaddset(&set, SIGPIPE);
	report("taken", sigtimedwait(&set, NULL, &none));
	return 0;
}

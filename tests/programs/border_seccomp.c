/* A process that may not make some system calls (seccomp(2)): they fail with an error. Each connection that it makes carries what it is given.
 *
 * border_seccomp ADDRESS CALL ERRNO: CALL is the name of what is refused, a line of `refusals` below. Case B52. */
#include "common.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { ANY = -1 };

static const struct {
	const char *name;
	int number, argument, value; /* refused where this argument has this value */
} refusals[] = {
	{"nothing", -1, ANY, 0},
	{"memfd_create", SYS_memfd_create, ANY, 0},
	{"socket of AF_UNIX", SYS_socket, 0, AF_UNIX},
	{"eventfd2", SYS_eventfd2, ANY, 0},
	{"epoll_create1", SYS_epoll_create1, ANY, 0},
	{"timerfd_create", SYS_timerfd_create, ANY, 0},
	{"clone3", SYS_clone3, ANY, 0},
	{"futex_waitv", 449, ANY, 0},
	{"signalfd4", SYS_signalfd4, ANY, 0},
	{"getsockopt of SO_PEERCRED", SYS_getsockopt, 2, SO_PEERCRED},
	{"sendmsg", SYS_sendmsg, ANY, 0},
	{"recvmsg", SYS_recvmsg, ANY, 0},
	{"madvise", SYS_madvise, ANY, 0},
	{"fcntl of F_ADD_SEALS", SYS_fcntl, 1, F_ADD_SEALS},
	{"ftruncate", SYS_ftruncate, ANY, 0},
	{"sched_getaffinity", SYS_sched_getaffinity, ANY, 0},
};

static void refuse(const char *name, int error) {
	size_t i = 0;
	while (i < COUNT(refusals) && strcmp(refusals[i].name, name)) i++;
	if (i == COUNT(refusals)) die("the name of a call");
	if (refusals[i].number < 0) return;
	unsigned which = refusals[i].argument == ANY ? 0 : (unsigned)refusals[i].argument;
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refusals[i].number, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)(offsetof(struct seccomp_data, args) + which * 8)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)refusals[i].value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	if (refusals[i].argument == ANY) /* whatever the argument is */
		filter[3] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0);
	struct sock_fprog program = {COUNT(filter), filter};
	must("no_new_privs", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	must("seccomp", prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	refuse(argc > 2 ? argv[2] : "nothing", (int)argument(2, EPERM));
	int listener = new_listener(0, 8);
	for (int i = 0; i < 5; i++) {
		struct pair both = connect_pair(listener);
		send_pattern(both.client, 50000, 5000, 1);
		must("shutdown", shutdown(both.client, SHUT_WR));
		if (recv_pattern(both.server, 50001, 7000, 1) != 50000) say("a connection of other bytes");
		send_all(both.server, "answer", 6);
		char text[6];
		struct pollfd one = {.fd = both.client, .events = POLLIN};
		must("poll", poll(&one, 1, ARRIVAL_MS));
		if (recv_all(both.client, text, 6) != 6) say("no answer");
		close_pair(both);
	}
	say("made 5");
	return 0;
}

/* A server whose ids, rights or root are not those any more with which it began to listen. For root.
 *
 * ids_change ADDRESS HOW [UID]: listens as root, changes as HOW says, and accepts clients of root and UID by turns, all made before. */
#include "common.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CLIENTS = 5, BYTES = 20000 };

static const char *how;
static uid_t user;

static void client(int gate, uid_t who) {
	struct address name;
	/* The server's turn for this one. */
	if (must("read", read(gate, &name, sizeof name)) != (long)sizeof name) _exit(8);
	if (who && (setgid((gid_t)who) || setuid(who))) _exit(7);
	int fd = new_socket(0);
	must("connect", connect_to(fd, name));
	send_pattern(fd, BYTES, 3000, 5);
	bool whole = recv_pattern(fd, BYTES, 4000, 6) == BYTES;
	close(fd);
	exit(!whole);
}

static void change(void) {
	if (!strcmp(how, "setuid")) {
		must("setgroups", setgroups(0, NULL));
		must("setgid", setgid((gid_t)user));
		must("setuid", setuid(user));
	} else if (!strcmp(how, "setresuid")) {
		must("setresgid", setresgid((gid_t)user, (gid_t)user, (gid_t)user));
		must("setresuid", setresuid(user, user, user));
	} else if (!strcmp(how, "seteuid")) {
		must("seteuid", seteuid(user));
	} else if (!strcmp(how, "back")) {
		must("seteuid", seteuid(user));
		must("seteuid", seteuid(0));
	} else if (!strcmp(how, "groups")) {
		gid_t groups[] = {(gid_t)user, 4};
		must("setgroups", setgroups(2, groups));
		must("setegid", setegid((gid_t)user));
	} else if (!strcmp(how, "chroot")) {
		must("chroot", chroot("/var/empty") ? chroot("/usr") : 0);
		must("chdir", chdir("/"));
	} else if (!strcmp(how, "undumpable")) {
		must("PR_SET_DUMPABLE", prctl(PR_SET_DUMPABLE, 0));
	} else if (!strcmp(how, "capabilities")) {
		must("PR_SET_NO_NEW_PRIVS", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
		struct __user_cap_data_struct none[2] = {{0}};
		must("capset", syscall(SYS_capset, &header, none));
	} else if (!strcmp(how, "daemon")) {
		must("daemon", daemon(0, 1));
	} else if (!strcmp(how, "twice")) {
		if (must("fork", fork())) _exit(0);
		must("setsid", setsid());
		if (must("fork", fork())) _exit(0);
	} else if (strcmp(how, "nothing")) {
		die(how);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	how = argc > 2 ? argv[2] : "nothing";
	user = (uid_t)argument(2, 65534);
	int gates[CLIENTS][2], results[2];
	must("pipe", pipe(results));
	for (int i = 0; i < CLIENTS; i++) {
		must("pipe", pipe(gates[i]));
		if (must("fork", fork())) continue;
		/* A grandchild, whose end does not depend on who its parent is by then. */
		pid_t one = (pid_t)must("fork", fork());
		if (!one) client(gates[i][0], i % 2 ? user : 0);
		int status;
		must("waitpid", waitpid(one, &status, 0));
		char result = status ? 'n' : 'y';
		must("write", write(results[1], &result, 1));
		_exit(0);
	}
	int listener = new_listener(0, 8);
	struct address name = name_of(listener);
	if (!strcmp(how, "daemon")) say("the daemon goes on");
	change();
	say("%s: real user %s, effective user %s", how, getuid() ? "other" : "root", geteuid() ? "other" : "root");
	for (int i = 0; i < CLIENTS; i++) {
		must("write", write(gates[i][1], &name, sizeof name));
		int fd = (int)must("accept", accept(listener, NULL, NULL));
		bool whole = recv_pattern(fd, BYTES, 4000, 5) == BYTES;
		send_pattern(fd, BYTES, 2000, 6);
		char byte, result;
		must("the end", recv(fd, &byte, 1, 0));
		close(fd);
		must("read", read(results[0], &result, 1));
		say("client of %s: %s, %c", i % 2 ? "the other" : "root", whole ? "whole" : "cut short", result);
	}
	say("done");
	return 0;
}

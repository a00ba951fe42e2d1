/* fstat(2) and friends see a socket, whatever its state: S_ISSOCK, one inode a socket, the same for its copies, and
 * /proc/self/fd says socket. isatty(3): ENOTTY. Case B21. */
#include "common.h"
#include <dlfcn.h>

static ino_t show(const char *what, int fd) {
	struct stat state = {0};
	report(what, fstat(fd, &state));
	say("%s: socket %s", what, yes_no(S_ISSOCK(state.st_mode)));
	struct stat at = {0};
	report(what, fstatat(fd, "", &at, AT_EMPTY_PATH));
	say("%s: the same by fstatat: %s", what, yes_no(at.st_ino == state.st_ino && S_ISSOCK(at.st_mode)));
	struct statx extended = {0};
	report(what, statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &extended));
	say("%s: the same by statx: %s", what, yes_no(extended.stx_ino == state.st_ino && S_ISSOCK(extended.stx_mode)));
	/* what programs call that were linked with glibc before 2.33 */
	int (*old)(int, int, struct stat *) = (int (*)(int, int, struct stat *))dlsym(RTLD_DEFAULT, "__fxstat64");
	memset(&at, 0, sizeof at);
	report(what, old ? old(1, fd, &at) : fstat64(fd, (struct stat64 *)&at));
	say("%s: the same by __fxstat64: %s", what, yes_no(at.st_ino == state.st_ino && S_ISSOCK(at.st_mode)));
	report(what, isfdtype(fd, S_IFSOCK));
	char path[32], link[64] = "";
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	must("readlink", readlink(path, link, sizeof link - 1));
	say("%s: /proc says %.7s", what, link);
	report(what, isatty(fd));
	report_descriptor("isatty", -1);
	return state.st_ino;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_socket(0);
	ino_t fresh = show("fresh", listener);
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 4));
	say("the same inode: %s", yes_no(show("listening", listener) == fresh));
	struct pair both = connect_pair(listener);
	ino_t client = show("client", both.client), server = show("server", both.server);
	say("different inodes: %s", yes_no(client != server && client != fresh));
	say("a copy has the same inode: %s", yes_no(show("copy", dup(both.client)) == client));
	close(both.server);
	wait_for(both.client, POLLRDHUP);
	say("the same inode after the peer's close: %s", yes_no(show("client", both.client) == client));
	return 0;
}

// native_options [ADDRESS]: the options of level SOL_RDMA, read and set in every state of an rsocket.
#include "common.h"
#include <rdma/rsocket.h>

static const struct {
	const char *name;
	int number;
} OPTIONS[] = {
	{"RDMA_SQSIZE", RDMA_SQSIZE}, {"RDMA_RQSIZE", RDMA_RQSIZE}, {"RDMA_INLINE", RDMA_INLINE}, {"RDMA_IOMAPSIZE", RDMA_IOMAPSIZE},
};

static const char *text(int result) { return result == 0 ? "ok" : strerrorname_np(errno); }

/* One line: what getting and setting (to what it is) gives, of each of them, and of one that there is not. */
static void look(const char *state, int fd) {
	printf("%s:", state);
	for (size_t i = 0; i < COUNT(OPTIONS); i++) {
		int value = -1;
		socklen_t length = sizeof value;
		printf(" %s", text(rgetsockopt(fd, SOL_RDMA, OPTIONS[i].number, &value, &length)));
		printf(" %s", text(rsetsockopt(fd, SOL_RDMA, OPTIONS[i].number, &value, sizeof value)));
	}
	int value = 0;
	socklen_t length = sizeof value;
	printf(" %s", text(rgetsockopt(fd, SOL_RDMA, 77, &value, &length)));
	say(" %s", text(rsetsockopt(fd, SOL_RDMA, 77, &value, sizeof value)));
}

/* What becomes of values: too small, too large, negative, cut short. */
static void values(int fd) {
	static const int VALUES[] = {1, 100, 1 << 20, -1};
	for (size_t i = 0; i < COUNT(OPTIONS); i++) {
		printf("%s:", OPTIONS[i].name);
		for (size_t k = 0; k < COUNT(VALUES); k++) {
			int value = 0;
			socklen_t length = sizeof value;
			const char *set = text(rsetsockopt(fd, SOL_RDMA, OPTIONS[i].number, &VALUES[k], sizeof VALUES[k]));
			must("rgetsockopt", rgetsockopt(fd, SOL_RDMA, OPTIONS[i].number, &value, &length));
			printf(" %s %d", set, value);
		}
		char some[2];
		socklen_t length = sizeof some;
		printf(" short: %s", text(rsetsockopt(fd, SOL_RDMA, OPTIONS[i].number, some, sizeof some)));
		must("rgetsockopt", rgetsockopt(fd, SOL_RDMA, OPTIONS[i].number, some, &length));
		say(" %d bytes", (int)length);
	}
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int fresh = (int)must("rsocket", rsocket(local.storage.ss_family, SOCK_STREAM, 0));
	values(fresh);
	rclose(fresh);
	int listener = (int)must("rsocket", rsocket(local.storage.ss_family, SOCK_STREAM, 0));
	look("fresh", listener);
	int size = 44;
	must("rsetsockopt", rsetsockopt(listener, SOL_RDMA, RDMA_SQSIZE, &size, sizeof size));
	must("rbind", rbind(listener, sockaddr_of(&local), local.length));
	look("bound", listener);
	must("rlisten", rlisten(listener, 1));
	look("listening", listener);
	struct address where = {.length = sizeof where.storage};
	must("rgetsockname", rgetsockname(listener, sockaddr_of(&where), &where.length));
	int client = (int)must("rsocket", rsocket(local.storage.ss_family, SOCK_STREAM, 0));
	must("rconnect", rconnect(client, sockaddr_of(&where), where.length));
	look("connected", client);
	int server = (int)must("raccept", raccept(listener, NULL, NULL));
	look("accepted", server);
	socklen_t length = sizeof size;
	must("rgetsockopt", rgetsockopt(server, SOL_RDMA, RDMA_SQSIZE, &size, &length));
	say("an accepted socket has the listener's %d", size);
	must("rshutdown", rshutdown(client, SHUT_WR));
	look("half shut", client);
	must("rshutdown", rshutdown(client, SHUT_RD));
	look("shut", client);
	rclose(server);
	rclose(listener);
	look("over", client);
	rclose(client);
	look("closed", client);
	return 0;
}

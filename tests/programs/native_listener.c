// libs: -lrdmacm
// native_listener ADDRESS PORT: a program of the r* functions whose listener has not set SO_REUSEADDR. Its port has to take RDMA peers
// on soft-iWARP too, where the kernel then does not listen: what the program sees is a listener all the same. Prints what is wrong.
#include "common.h"
#include <rdma/rsocket.h>
#include <time.h>

static struct address where;

static void *connects(void *unused) {
	char bytes[4];

	(void)unused;
	usleep(1500000);
	int fd = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
	if (rconnect(fd, sockaddr_of(&where), where.length)) die("rconnect");
	if (rsend(fd, "ping", 4, 0) != 4) die("rsend");
	if (rrecv(fd, bytes, sizeof bytes, MSG_WAITALL) != 4) die("rrecv");
	rshutdown(fd, SHUT_RDWR);
	rclose(fd);
	return NULL;
}

static double cpu_seconds(void) {
	struct timespec time;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int wrong;
static void expect(const char *what, bool right) {
	if (right) return;
	printf("wrong: %s (errno %s)\n", what, strerror(errno));
	wrong = 1;
}

int main(int argc, char **argv) {
	char bytes[4];

	begin(argc, argv);
	where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 7000));
	int listener = rsocket(where.storage.ss_family, SOCK_STREAM, 0);
	expect("rbind", rbind(listener, sockaddr_of(&where), where.length) == 0);
	expect("rlisten", rlisten(listener, 4) == 0);
	expect("rlisten again", rlisten(listener, 8) == 0);
	int value = 0;
	socklen_t length = sizeof value;
	expect("SO_ACCEPTCONN", rgetsockopt(listener, SOL_SOCKET, SO_ACCEPTCONN, &value, &length) == 0 && value == 1);
	expect("SO_REUSEADDR", rgetsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &value, &length) == 0 && value == 0);
	struct pollfd poll = { .fd = listener, .events = POLLIN };
	expect("rpoll without a peer", rpoll(&poll, 1, 50) == 0);

	pthread_t client = start_thread(connects, NULL);
	double before = cpu_seconds();
	int fd = raccept(listener, NULL, NULL);
	expect("raccept", fd >= 0);
	double spent = cpu_seconds() - before;
	if (spent > 1.2) printf("wrong: %.3f s of CPU time in raccept\n", spent), wrong = 1;
	expect("rrecv", rrecv(fd, bytes, sizeof bytes, MSG_WAITALL) == 4);
	expect("rsend", rsend(fd, bytes, sizeof bytes, 0) == 4);
	expect("end of file", rrecv(fd, bytes, sizeof bytes, 0) == 0);
	pthread_join(client, NULL);
	rclose(fd);

	client = start_thread(connects, NULL);
	expect("rpoll with a peer", rpoll(&poll, 1, 10000) == 1 && poll.revents == POLLIN);
	fd = raccept(listener, NULL, NULL);
	expect("raccept after rpoll", fd >= 0);
	expect("rrecv", rrecv(fd, bytes, sizeof bytes, MSG_WAITALL) == 4);
	expect("rsend", rsend(fd, bytes, sizeof bytes, 0) == 4);
	pthread_join(client, NULL);
	rclose(fd);

	expect("rshutdown", rshutdown(listener, SHUT_RDWR) == 0);
	expect("raccept after rshutdown", raccept(listener, NULL, NULL) == -1 && errno == EINVAL);
	rclose(listener);
	return wrong;
}

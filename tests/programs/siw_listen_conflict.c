// libs: -lrdmacm
// siw_listen_conflict ADDRESS: may an RDMA listener and a kernel TCP socket have the same port of ADDRESS?
// Prints one line a case; soft-iWARP takes the port from the kernel's TCP, RoCE does not.
#include <arpa/inet.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sockaddr_in address = { .sin_family = AF_INET };

static const char *outcome(int result)
{
	return result ? strerror(errno) : "ok";
}

static void rdma_listens(const char *when)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;

	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	printf("%s: rdma_bind_addr %s, ", when, outcome(rdma_bind_addr(id, (struct sockaddr *)&address)));
	printf("rdma_listen %s\n", outcome(rdma_listen(id, 4)));
	rdma_destroy_id(id);
	rdma_destroy_event_channel(channel);
}

static int tcp(int reuse_address, int reuse_port)
{
	int s = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &reuse_address, sizeof reuse_address);
	setsockopt(s, SOL_SOCKET, SO_REUSEPORT, &reuse_port, sizeof reuse_port);
	return s;
}

int main(int argc, char **argv)
{
	struct sockaddr_in any = { .sin_family = AF_INET };
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	char when[80];
	int s;

	if (argc != 2 || inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
		return 2;
	for (int reuse = 0; reuse < 4; reuse++) {
		for (int wild = 0; wild < 2; wild++) {
			address.sin_port = any.sin_port = htons(6000 + 2 * reuse + wild);
			s = tcp(reuse & 1, reuse >> 1);
			if (bind(s, (struct sockaddr *)(wild ? &any : &address), sizeof any))
				return 1;
			snprintf(when, sizeof when, "tcp bound to %s%s%s", wild ? "0.0.0.0" : "the address", reuse & 1 ? ", SO_REUSEADDR" : "",
				reuse & 2 ? ", SO_REUSEPORT" : "");
			rdma_listens(when);
			listen(s, 4);
			memcpy(when, "tcp lstn ", 9);
			rdma_listens(when);
			close(s);
		}
	}
	address.sin_port = htons(6100);
	rdma_listens("tcp absent");

	// bound by TCP that shares, then taken by the RDMA listener, then listened on by TCP
	address.sin_port = htons(6101);
	channel = rdma_create_event_channel();
	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	if (bind(s = tcp(1, 0), (struct sockaddr *)&address, sizeof address) || rdma_bind_addr(id, (struct sockaddr *)&address))
		return 1;
	printf("tcp bound, SO_REUSEADDR: rdma_listen %s, then ", outcome(rdma_listen(id, 4)));
	printf("tcp listen %s\n", outcome(listen(s, 4)));
	rdma_destroy_id(id);
	close(s);
	address.sin_port = htons(6100);

	// the other order
	channel = rdma_create_event_channel();
	rdma_create_id(channel, &id, NULL, RDMA_PS_TCP);
	if (rdma_bind_addr(id, (struct sockaddr *)&address))
		return 1;
	printf("rdma bound, not listening: tcp bind %s\n", outcome(bind(s = tcp(1, 0), (struct sockaddr *)&address, sizeof address)));
	close(s);
	if (rdma_listen(id, 4))
		return 1;
	for (int reuse = 0; reuse < 4; reuse++) {
		s = tcp(reuse & 1, reuse >> 1);
		printf("rdma listens: tcp%s%s bind %s, ", reuse & 1 ? " SO_REUSEADDR" : "", reuse & 2 ? " SO_REUSEPORT" : "",
			outcome(bind(s, (struct sockaddr *)&address, sizeof address)));
		printf("listen %s\n", outcome(listen(s, 4)));
		close(s);
	}
	return 0;
}

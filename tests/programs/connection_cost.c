// libs: -lrdmacm -libverbs
// connection_cost ADDRESS [ROUNDS]: what each step of making and ending an RDMA connection costs, in microseconds (medians).
// For RoCE. Client and server are two processes of one host; each variant of how resources are kept gets a column.
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (128 * 1024)
#define MOST 1000

struct variant {
	const char *name;
	int shared_channel;	// one event channel for all ids, events taken by rdma_get_cm_event; else one a id, synchronous calls
	int shared_pd;		// one protection domain for all
	int depth;		// send and receive work requests of a QP
	int shared_cq;		// one CQ and completion channel for all
	int shared_mr;		// one registered memory for all
};

static const struct variant variants[] = {
	{ "as-shipped", 0, 0, 384, 0, 0 },
	{ "channel", 1, 0, 384, 0, 0 },
	{ "chan+pd", 1, 1, 384, 0, 0 },
	{ "chan+pd+64", 1, 1, 64, 0, 0 },
	{ "+cq", 1, 1, 64, 1, 0 },
	{ "+mr", 1, 1, 64, 1, 1 },
};
#define VARIANTS (sizeof variants / sizeof *variants)

enum step { CREATE_ID, RESOLVE_ADDR, RESOLVE_ROUTE, COMP_CHANNEL, CREATE_CQ, CREATE_QP, REG_MR, POST_RECV, CONNECT, DISCONNECT, DESTROY_QP,
	DESTROY_CQ, DEREG_MR, DESTROY_ID, STEPS };
static const char *const step_names[STEPS] = { "rdma_create_id", "rdma_resolve_addr", "rdma_resolve_route", "ibv_create_comp_channel", "ibv_create_cq",
	"rdma_create_qp", "ibv_reg_mr x2", "ibv_post_recv x depth", "rdma_connect..established", "rdma_disconnect", "rdma_destroy_qp", "ibv_destroy_cq, channel",
	"ibv_dereg_mr x2", "rdma_destroy_id" };
enum server_step { S_QP, S_MR, S_ACCEPT, S_STEPS, S_REQUEST_AT = S_STEPS, S_ACCEPTED_AT, S_ALL };	// the last two: points in time
static const char *const server_names[S_STEPS] = { "  server: channel, cq, qp, recvs", "  server: ibv_reg_mr x2", "  server: rdma_accept" };

static double taken[VARIANTS][STEPS + 3][MOST], *server_taken;	// [STEPS]: all up to established; + 1, + 2: parts of connect
#define SERVER(v, s, i) server_taken[((v) * S_ALL + (s)) * MOST + (i)]

struct resources {
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_mr *mr[2];
	char *memory;
};
static struct ibv_pd *pd;
static struct resources common;

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static struct rdma_cm_id *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	need(!rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	if (event->event != type) {
		fprintf(stderr, "got %s, not %s\n", rdma_event_str(event->event), rdma_event_str(type));
		exit(1);
	}
	id = event->id;
	rdma_ack_cm_event(event);
	return id;
}

static double lap(double *from)
{
	double t = now(), d = t - *from;

	*from = t;
	return d;
}

static void make_memory(struct resources *r, struct ibv_pd *in)
{
	for (int i = 0; i < 2; i++) {
		r->mr[i] = ibv_reg_mr(in, r->memory + i * BUFFER, BUFFER, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
		need(!!r->mr[i], "ibv_reg_mr");
	}
}

static void make_queue(struct resources *r, struct rdma_cm_id *id, int depth, double *at, double *channel, double *cq)
{
	r->channel = ibv_create_comp_channel(id->verbs);
	need(!!r->channel, "ibv_create_comp_channel");
	*channel = lap(at);
	r->cq = ibv_create_cq(id->verbs, 2 * depth, NULL, r->channel, 0);
	need(!!r->cq, "ibv_create_cq");
	*cq = lap(at);
}

static void make_qp(struct resources *r, struct rdma_cm_id *id, int depth, int own_pd)
{
	struct ibv_qp_init_attr a = { .send_cq = r->cq, .recv_cq = r->cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth, .max_send_sge = 2, .max_recv_sge = 1, .max_inline_data = 64 } };

	need(!rdma_create_qp(id, own_pd ? id->pd : pd, &a), "rdma_create_qp");
}

static void post_receives(struct rdma_cm_id *id, int depth)
{
	struct ibv_recv_wr w = { .wr_id = 1 }, *bad;

	for (int i = 0; i < depth; i++)
		need(!ibv_post_recv(id->qp, &w, &bad), "ibv_post_recv");
}

static void server(int v, struct sockaddr_storage *address, int rounds, int ready)
{
	const struct variant *k = &variants[v];
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1, .retry_count = 6, .rnr_retry_count = 7 };
	struct rdma_cm_id *listener, *id;
	double ignored = 0;

	need(!!channel && !rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	need(!rdma_bind_addr(listener, (struct sockaddr *)address) && !rdma_listen(listener, 8), "rdma_listen");
	pd = NULL;
	need(write(ready, "", 1) == 1, "pipe");
	for (int i = 0; i < rounds; i++) {
		struct resources own = { .memory = common.memory }, *r = k->shared_cq ? &common : &own, *m = k->shared_mr ? &common : &own;
		double at;

		id = expect(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
		SERVER(v, S_REQUEST_AT, i) = at = now();
		if (!pd)
			need(!!(pd = ibv_alloc_pd(id->verbs)), "ibv_alloc_pd");
		if (!r->cq)
			make_queue(r, id, k->shared_cq ? 512 : k->depth, &ignored, &ignored, &ignored);
		make_qp(r, id, k->depth, !k->shared_pd);
		post_receives(id, k->depth);
		SERVER(v, S_QP, i) = lap(&at);
		if (!m->mr[0])
			make_memory(m, pd);
		SERVER(v, S_MR, i) = lap(&at);
		need(!rdma_accept(id, &param), "rdma_accept");
		SERVER(v, S_ACCEPT, i) = lap(&at);
		SERVER(v, S_ACCEPTED_AT, i) = at;
		expect(channel, RDMA_CM_EVENT_ESTABLISHED);
		expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		rdma_disconnect(id);
		rdma_destroy_qp(id);
		if (!k->shared_cq)
			ibv_destroy_cq(r->cq), ibv_destroy_comp_channel(r->channel);
		if (!k->shared_mr)
			ibv_dereg_mr(m->mr[0]), ibv_dereg_mr(m->mr[1]);
		rdma_destroy_id(id);
	}
	exit(0);
}

static void client(int v, struct sockaddr_storage *address, int rounds)
{
	const struct variant *k = &variants[v];
	struct rdma_event_channel *channel = NULL;
	struct rdma_conn_param param = { .initiator_depth = 1, .responder_resources = 1, .retry_count = 6, .rnr_retry_count = 7 };
	struct rdma_cm_id *id, *holder = NULL;

	pd = NULL;
	memset(&common, 0, offsetof(struct resources, memory));
	if (k->shared_channel)
		need(!!(channel = rdma_create_event_channel()), "rdma_create_event_channel");
	for (int i = 0; i < rounds; i++) {
		struct resources own = { .memory = common.memory }, *r = k->shared_cq ? &common : &own, *m = k->shared_mr ? &common : &own;
		double start = now(), at = start, established;
#define TOOK(step) (taken[v][step][i] = lap(&at))

		need(!rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
		TOOK(CREATE_ID);
		need(!rdma_resolve_addr(id, NULL, (struct sockaddr *)address, 2000), "rdma_resolve_addr");
		if (channel)
			expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
		TOOK(RESOLVE_ADDR);
		need(!rdma_resolve_route(id, 2000), "rdma_resolve_route");
		if (channel)
			expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
		TOOK(RESOLVE_ROUTE);
		if (!pd)
			need(!!(pd = ibv_alloc_pd(id->verbs)), "ibv_alloc_pd");
		at = now();
		if (!r->cq)
			make_queue(r, id, k->shared_cq ? 512 : k->depth, &at, &taken[v][COMP_CHANNEL][i], &taken[v][CREATE_CQ][i]);
		make_qp(r, id, k->depth, !k->shared_pd);
		TOOK(CREATE_QP);
		if (!m->mr[0])
			make_memory(m, pd);
		TOOK(REG_MR);
		post_receives(id, k->depth);
		TOOK(POST_RECV);
		need(!rdma_connect(id, &param), "rdma_connect");
		if (channel)
			expect(channel, RDMA_CM_EVENT_ESTABLISHED);
		TOOK(CONNECT);
		taken[v][STEPS][i] = at - start;
		established = at;

		usleep(2000);	// the server comes out of rdma_accept and takes its event
		taken[v][STEPS + 1][i] = SERVER(v, S_REQUEST_AT, i) - (established - taken[v][CONNECT][i]);
		taken[v][STEPS + 2][i] = established - SERVER(v, S_ACCEPTED_AT, i);
		at = now();
		need(!rdma_disconnect(id), "rdma_disconnect");
		if (channel)
			expect(channel, RDMA_CM_EVENT_DISCONNECTED);
		TOOK(DISCONNECT);
		rdma_destroy_qp(id);
		TOOK(DESTROY_QP);
		if (!k->shared_cq)
			ibv_destroy_cq(r->cq), ibv_destroy_comp_channel(r->channel);
		TOOK(DESTROY_CQ);
		if (!k->shared_mr)
			ibv_dereg_mr(m->mr[0]), ibv_dereg_mr(m->mr[1]);
		TOOK(DEREG_MR);
		if (k->shared_pd && !holder)
			holder = id;	// one id stays, so that the device does too
		else
			rdma_destroy_id(id);
		TOOK(DESTROY_ID);
		usleep(2000);
	}
}

static int ascending(const void *a, const void *b)
{
	double d = *(const double *)a - *(const double *)b;

	return (d > 0) - (d < 0);
}

static double median(double *values, int n)
{
	qsort(values, n, sizeof *values, ascending);
	return values[n / 2];
}

static void row(const char *name, double *values, int stride, int rounds)
{
	printf("\n%-34s", name);
	for (unsigned v = 0; v < VARIANTS; v++)
		printf(" %10.0f", median(values + (size_t)v * stride, rounds));
}

int main(int argc, char **argv)
{
	struct sockaddr_storage address = { 0 };
	struct sockaddr_in *in = (struct sockaddr_in *)&address;
	int rounds = argc > 2 ? atoi(argv[2]) : 50, ready[2], status, failed = 0;

	if (argc < 2 || rounds < 1 || rounds > MOST || inet_pton(AF_INET, argv[1], &in->sin_addr) != 1) {
		fprintf(stderr, "connection_cost ADDRESS [ROUNDS]\n");
		return 2;
	}
	in->sin_family = AF_INET;
	server_taken = mmap(NULL, VARIANTS * S_ALL * MOST * sizeof(double), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(server_taken != MAP_FAILED, "mmap");
	common.memory = aligned_alloc(4096, 2 * BUFFER);
	need(!!common.memory && !pipe(ready), "memory, pipe");
	memset(common.memory, 0, 2 * BUFFER);

	// a new server process for each variant
	for (unsigned v = 0; v < VARIANTS; v++) {
		pid_t s;
		char c;

		in->sin_port = htons(7000 + v);
		s = fork();
		if (!s)
			server(v, &address, rounds, ready[1]);
		need(read(ready[0], &c, 1) == 1, "server");
		client(v, &address, rounds);
		waitpid(s, &status, 0);
		failed |= status;
	}

	printf("%-34s", "us, median");
	for (unsigned v = 0; v < VARIANTS; v++)
		printf(" %10s", variants[v].name);
	for (int s = 0; s < STEPS; s++) {
		row(step_names[s], &taken[0][s][0], (STEPS + 3) * MOST, rounds);
		if (s == CONNECT) {
			row("  until the server has the request", &taken[0][STEPS + 1][0], (STEPS + 3) * MOST, rounds);
			for (int t = 0; t < S_STEPS; t++)
				row(server_names[t], &SERVER(0, t, 0), S_ALL * MOST, rounds);
			row("  from there to established", &taken[0][STEPS + 2][0], (STEPS + 3) * MOST, rounds);
			row("= all up to established", &taken[0][STEPS][0], (STEPS + 3) * MOST, rounds);
		}
	}
	printf("\n");
	return !!failed;
}

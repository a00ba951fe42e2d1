/* Connections a second, and what an open one costs, on plain sockets: run it on the kernel or under any preload library.
 *
 * bench_connect serve ADDRESS PORT            echoes on every connection, until killed
 * bench_connect rate ADDRESS PORT COUNT       connect, one byte there and back, close: "rate N", "p50 US", "p99 US"
 * bench_connect hold ADDRESS PORT COUNT       that many open at once: "rss KIB" and "descriptors N" a connection
 * bench_connect latency ADDRESS PORT COUNT    64 bytes there and back on one connection: "latency NANOSECONDS" */
#include "common.h"

static struct address where;

static long rss_kib(void) {
	FILE *file = fopen("/proc/self/statm", "r");
	long all = 0, resident = 0;
	if (!file || fscanf(file, "%ld %ld", &all, &resident) != 2) die("statm");
	fclose(file);
	return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

static void *echo(void *context) {
	int fd = (int)(intptr_t)context;
	char text[4096];
	ssize_t got;
	while ((got = recv(fd, text, sizeof text, 0)) > 0) send_all(fd, text, (size_t)got);
	close(fd);
	return NULL;
}

static void serve(void) {
	int listener = new_socket(0), on = 1;
	must("SO_REUSEADDR", setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	must("bind", bind_to(listener, where));
	must("listen", listen(listener, 128));
	for (;;) pthread_detach(start_thread(echo, (void *)(intptr_t)must("accept", accept(listener, NULL, NULL))));
}

static int open_one(void) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, where));
	return fd;
}

static void round_trip(int fd, size_t length) {
	char text[64] = "";
	send_all(fd, text, length);
	if (recv_all(fd, text, length) != length) die("echo");
}

static void rate(int count) {
	int64_t *times = calloc((size_t)count, sizeof *times), start = now_us();
	for (int i = 0; i < count; i++) {
		int64_t begun = now_us();
		int fd = open_one();
		times[i] = now_us() - begun;
		round_trip(fd, 1);
		close(fd);
	}
	int64_t all = now_us() - start;
	qsort(times, (size_t)count, sizeof *times, ascending);
	say("rate %lld", (long long)((int64_t)count * 1000000 / (all ? all : 1)));
	say("p50 %lld", (long long)times[count / 2]);
	say("p99 %lld", (long long)times[count * 99 / 100]);
	free(times);
}

static void hold(int count) {
	int warm = open_one();
	round_trip(warm, 1);
	long rss = rss_kib();
	int descriptors = open_descriptors();
	for (int i = 0; i < count; i++) round_trip(open_one(), 1);
	say("rss %ld", (rss_kib() - rss) / count);
	say("descriptors %.2f", (double)(open_descriptors() - descriptors) / count);
}

static void latency(int count) {
	int fd = open_one();
	for (int i = 0; i < count / 10 + 1; i++) round_trip(fd, 64);
	int64_t start = now_us();
	for (int i = 0; i < count; i++) round_trip(fd, 64);
	say("latency %lld", (long long)((now_us() - start) * 1000 / count));
}

int main(int argc, char **argv) {
	if (argc < 4) {
		fprintf(stderr, "bench_connect serve|rate|hold|latency ADDRESS PORT [COUNT]\n");
		return 2;
	}
	const char *what = argv[1];
	begin(argc - 1, argv + 1);
	alarm(0);
	where = local;
	*port_of(&where) = htons((uint16_t)argument(1, 0));
	int count = (int)argument(2, 100);
	if (!strcmp(what, "serve")) serve();
	if (!strcmp(what, "rate")) rate(count);
	if (!strcmp(what, "hold")) hold(count);
	if (!strcmp(what, "latency")) latency(count);
	return 0;
}

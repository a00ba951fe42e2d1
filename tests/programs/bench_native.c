/* What a connection between two processes of this host does: over TCP (kernel, or under any preload library) and over AF_UNIX.
 * Run by scripts/bench-native.
 *
 * bench_native round-trip tcp|unix BYTES MS [HOW]    one message there and back for MS milliseconds: "p50 NS", "p99 NS".
 *                                                    HOW: busy (the program itself asks again and again instead of waiting),
 *                                                    together (both on one CPU), unbound (where the kernel puts them),
 *                                                    bound (to a CPU each from the start, as by taskset)
 * bench_native one-way tcp|unix BYTES MS             as many as go: "bytes MB/s", "messages 1/s"
 * bench_native connect tcp|unix COUNT                connect, one byte there and back, close: "rate 1/s", "p50 NS"
 * bench_native hold tcp|unix COUNT                   that many open at once; a connection, both ends together, in KiB: "rss", "pss",
 *                                                    "pss-used" (after 256 KiB each way); a connection and end: "descriptors"
 * bench_native port                                  a port of 127.0.0.1 that is free now
 *
 * The processes part before either has made a socket, and are bound to a CPU each where there are two (but for HOW). */
#include "common.h"
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { SAMPLES = 1 << 20, READ_BUFFER = 64 << 10, USED = 256 << 10, MOST_OPEN = 8000 };

static char text[1 << 20];
static int numbers[3];	   /* of the command line */
static enum { APART, BUSY, TOGETHER, UNBOUND, BOUND } how;
static const char *const ways[] = {"", "busy", "together", "unbound", "bound"};
static int to_client[2], to_server[2]; /* pipes: what the ends tell each other beside the connection */

static int64_t now_ns(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void tell(int fd, const void *what, size_t length) {
	if (write(fd, what, length) != (ssize_t)length) die("pipe");
}

static void hear(int fd, void *what, size_t length) {
	if (read(fd, what, length) != (ssize_t)length) die("pipe: the other end is gone");
}

/* Binds this process to the first or the second of the CPUs that it may use. */
static void bind_to_cpu(int which) {
	cpu_set_t all, one;
	CPU_ZERO(&one);
	must("sched_getaffinity", sched_getaffinity(0, sizeof all, &all));
	which = CPU_COUNT(&all) > 1 && how != TOGETHER ? which : 0;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &all) && which-- == 0) CPU_SET(cpu, &one);
	must("sched_setaffinity", sched_setaffinity(0, sizeof one, &one));
}

static void without_delay(int fd) {
	int on = 1;
	if (local.storage.ss_family == AF_INET) must("TCP_NODELAY", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
}

static void receive(int fd, size_t length) {
	if (recv_all(fd, text, length) != length) die("the stream ended early");
}

/* The first byte each way, each waited for. Only then is the process bound, if it was not from the start: a library that does not spin where
 * the process may use one CPU only has then seen more of them; it may look again after a second or later. */
static void greet(int fd, bool server) {
	if (server) receive(fd, 1);
	sleep_ms(2);
	send_all(fd, text, 1);
	if (!server) receive(fd, 1);
	if (how != UNBOUND && how != BOUND) bind_to_cpu(server);
}

static int connected(struct address *listener) {
	int fd = new_socket(0);
	must("connect", connect_to(fd, *listener));
	return fd;
}

static int accepted(int listener) { return (int)must("accept", accept(listener, NULL, NULL)); }

/* Like recv_all, but asks without waiting. */
static bool receive_busy(int fd, size_t length) {
	for (size_t done = 0; done < length;) {
		ssize_t got = recv(fd, text + done, length - done, MSG_DONTWAIT);
		if (got == 0) return false;
		if (got > 0)
			done += (size_t)got;
		else if (errno != EAGAIN)
			die("recv");
	}
	return true;
}

static bool took(int fd, size_t length) { return how == BUSY ? receive_busy(fd, length) : recv_all(fd, text, length) == length; }

static void round_trip_server(int listener) {
	int fd = accepted(listener);
	size_t bytes = (size_t)numbers[0];
	without_delay(fd);
	greet(fd, true);
	while (took(fd, bytes)) send_all(fd, text, bytes);
	close(fd);
}

static void round_trip_client(struct address *listener) {
	static int64_t times[SAMPLES];
	int fd = connected(listener);
	size_t bytes = (size_t)numbers[0], count = 0;
	without_delay(fd);
	memset(times, 1, sizeof times); /* so that no page is missing later */
	greet(fd, false);
	int64_t start = now_ns(), warm = start + numbers[1] * (int64_t)100000, end = start + numbers[1] * (int64_t)1000000;
	for (int64_t before = start, after; before < end && count < SAMPLES; before = after) {
		send_all(fd, text, bytes);
		if (!took(fd, bytes)) die("the stream ended early");
		after = now_ns();
		if (before >= warm) times[count++] = after - before;
	}
	close(fd);
	if (!count) die("no round trip in this time");
	qsort(times, count, sizeof *times, ascending);
	say("p50 %lld", (long long)times[count / 2]);
	say("p99 %lld", (long long)times[count * 99 / 100]);
}

static void one_way_server(int listener) {
	static char buffer[READ_BUFFER];
	int fd = accepted(listener);
	greet(fd, true);
	while (must("recv", recv(fd, buffer, sizeof buffer, 0)) > 0) continue;
	send_all(fd, text, 1);
	close(fd);
}

static void one_way_client(struct address *listener) {
	int fd = connected(listener);
	size_t bytes = (size_t)numbers[0], unlooked = 1 + READ_BUFFER / bytes;
	int64_t messages = 0;
	greet(fd, false);
	int64_t start = now_ns(), end = start + numbers[1] * (int64_t)1000000;
	while (now_ns() < end)
		for (size_t i = 0; i < unlooked; i++, messages++) send_all(fd, text, bytes);
	must("shutdown", shutdown(fd, SHUT_WR));
	receive(fd, 1); /* all has been read */
	double seconds = (double)(now_ns() - start) / 1e9;
	close(fd);
	say("bytes %.2f", (double)messages * (double)bytes / seconds / 1e6);
	say("messages %.0f", (double)messages / seconds);
}

static void serve_one(int listener) {
	int fd = accepted(listener);
	without_delay(fd);
	receive(fd, 1);
	send_all(fd, text, 1);
	if (recv(fd, text, 1, 0) != 0) die("the end of the stream");
	close(fd);
}

static void connect_server(int listener) {
	int fd = accepted(listener);
	greet(fd, true);
	for (int i = 0; i < numbers[0] + numbers[0] / 10; i++) serve_one(listener);
	close(fd);
}

static int64_t connect_one(struct address *listener) {
	int64_t start = now_ns();
	int fd = connected(listener);
	int64_t taken = now_ns() - start;
	without_delay(fd);
	send_all(fd, text, 1);
	receive(fd, 1);
	close(fd);
	return taken;
}

static void connect_client(struct address *listener) {
	int count = numbers[0], first = connected(listener);
	int64_t *times = calloc((size_t)count, sizeof *times);
	greet(first, false);
	for (int i = 0; i < count / 10; i++) connect_one(listener);
	int64_t start = now_ns();
	for (int i = 0; i < count; i++) times[i] = connect_one(listener);
	int64_t all = now_ns() - start;
	close(first);
	qsort(times, (size_t)count, sizeof *times, ascending);
	say("rate %.0f", count * 1e9 / (double)all);
	say("p50 %lld", (long long)times[count / 2]);
	free(times);
}

struct usage {
	long rss, pss; /* KiB */
	int descriptors;
};

static struct usage usage_now(void) {
	struct usage now = {.descriptors = open_descriptors()};
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	char line[256];
	while (file && fgets(line, sizeof line, file)) {
		sscanf(line, "Rss: %ld", &now.rss);
		sscanf(line, "Pss: %ld", &now.pss);
	}
	if (!file || !now.rss || !now.pss) die("smaps_rollup");
	fclose(file);
	return now;
}

/* Waits for the other end to get as far, then both look; the client gets the sums. */
static struct usage usage_of_both(bool server) {
	struct usage own, other = {0};
	if (server) {
		hear(to_server[0], text, 1);
		own = usage_now();
		tell(to_client[1], &own, sizeof own);
		return own;
	}
	tell(to_server[1], text, 1);
	hear(to_client[0], &other, sizeof other);
	own = usage_now();
	return (struct usage){own.rss + other.rss, own.pss + other.pss, own.descriptors + other.descriptors};
}

static void exchange(int fd, bool server, size_t bytes) {
	if (server) receive(fd, bytes);
	send_all(fd, text, bytes);
	if (!server) receive(fd, bytes);
}

/* Both ends: `next(context)` gives a new connection. */
static void hold(bool server, int (*next)(void *), void *context) {
	static int open[MOST_OPEN];
	int count = numbers[0], warm = next(context);
	memset(text, 1, USED);
	greet(warm, server);
	exchange(warm, server, USED);
	struct usage before = usage_of_both(server);
	for (int i = 0; i < count; i++) exchange(open[i] = next(context), server, 1);
	struct usage idle = usage_of_both(server);
	for (int i = 0; i < count; i++) exchange(open[i], server, USED);
	struct usage used = usage_of_both(server);
	for (int i = 0; i < count; i++) close(open[i]);
	close(warm);
	if (server) return;
	say("rss %.2f", (double)(idle.rss - before.rss) / count);
	say("pss %.2f", (double)(idle.pss - before.pss) / count);
	say("pss-used %.2f", (double)(used.pss - before.pss) / count);
	say("descriptors %.2f", (double)(idle.descriptors - before.descriptors) / count / 2);
}

static int next_accepted(void *listener) { return accepted(*(int *)listener); }
static int next_connected(void *listener) { return connected(listener); }
static void hold_server(int listener) { hold(true, next_accepted, &listener); }
static void hold_client(struct address *listener) { hold(false, next_connected, listener); }

static const struct measure {
	const char *name;
	int numbers, most; /* how many, and how large the first may be */
	void (*server)(int listener);
	void (*client)(struct address *listener);
} measures[] = {
	{"round-trip", 2, sizeof text, round_trip_server, round_trip_client},
	{"one-way", 2, sizeof text, one_way_server, one_way_client},
	{"connect", 1, 1000000, connect_server, connect_client},
	{"hold", 1, MOST_OPEN, hold_server, hold_client},
};

static const struct measure *asked_for(int argc, char **argv) {
	for (size_t i = 0; argc > 2 && i < COUNT(measures); i++) {
		const struct measure *measure = &measures[i];
		bool known = !strcmp(argv[1], measure->name) && (!strcmp(argv[2], "tcp") || !strcmp(argv[2], "unix"));
		for (size_t j = 1; i == 0 && argc == 6 && j < COUNT(ways); j++)
			if (!strcmp(argv[5], ways[j])) how = j;
		if (!known || argc != 3 + measure->numbers + (how != APART)) continue;
		for (int j = 0; j < measure->numbers; j++) numbers[j] = atoi(argv[3 + j]);
		if (numbers[0] > 0 && numbers[0] <= measure->most && (measure->numbers == 1 || numbers[1] > 0)) return measure;
	}
	return NULL;
}

static int free_port(void) {
	struct address name = closed_port();
	say("%d", ntohs(*port_of(&name)));
	return 0;
}

/* In a process of its own, which ends with the client. */
static int serve(const struct measure *measure) {
	must("prctl", prctl(PR_SET_PDEATHSIG, SIGKILL));
	alarm(WATCHDOG_SECONDS);
	if (how == BOUND) bind_to_cpu(1);
	int listener = new_listener(0, 128);
	struct address name = name_of(listener);
	tell(to_client[1], &name, sizeof name);
	measure->server(listener);
	close(listener);
	return 0;
}

int main(int argc, char **argv) {
	begin(1, argv);
	if (argc == 2 && !strcmp(argv[1], "port")) return free_port();
	const struct measure *measure = asked_for(argc, argv);
	if (!measure) {
		fprintf(stderr, "bench_native round-trip|one-way|connect|hold tcp|unix NUMBER...: see the head of its source\n");
		return 2;
	}
	if (!strcmp(argv[2], "unix")) { /* the kernel gives it a name */
		local = (struct address){.length = offsetof(struct sockaddr_un, sun_path)};
		local.storage.ss_family = AF_UNIX;
	}
	struct rlimit limit;
	must("getrlimit", getrlimit(RLIMIT_NOFILE, &limit));
	limit.rlim_cur = limit.rlim_max;
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	must("pipe", pipe(to_client) | pipe(to_server));
	pid_t server = (pid_t)must("fork", fork());
	if (server == 0) {
		close(to_client[0]);
		close(to_server[1]);
		return serve(measure);
	}
	if (how == BOUND) bind_to_cpu(0);
	close(to_client[1]);
	close(to_server[0]);
	struct address listener;
	hear(to_client[0], &listener, sizeof listener);
	measure->client(&listener);
	int status;
	must("waitpid", waitpid(server, &status, 0));
	return status ? 1 : 0;
}

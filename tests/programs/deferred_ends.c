/* How connections end, around their first call: closed without data at either end, half closed first, closed or killed while the other
 * end makes its first call, many short ones, and data still on the way at exit. close(2), shutdown(2), tcp(7). */
#include "deferred.h"

/* Waits for the end, and tells what comes. */
static void read_on(int fd) {
	static char block[4096];
	long bytes = 0;
	ssize_t got;
	while ((got = recv(fd, block, sizeof block, 0)) > 0) bytes += got;
	say("%ld bytes, then %s", bytes, got ? strerrorname_np(errno) : "the end");
}

static void nothing(int fd, long unused) { (void)fd, (void)unused; }

static void only_reads(int fd, long unused) {
	(void)unused;
	read_on(fd);
}

static void polls_and_reads(int fd, long unused) {
	(void)unused;
	wait_for(fd, POLLIN | POLLRDHUP);
	say("poll: the end");
	read_on(fd);
}

/* Shuts one half before any other call. */
static void shuts(int fd, long unused) {
	(void)unused;
	report("shutdown", shutdown(fd, SHUT_WR));
	read_on(fd);
}

static void sends_and_shuts(int fd, long bytes) {
	send_pattern(fd, (uint64_t)bytes, 40000, 1);
	report("shutdown", shutdown(fd, SHUT_WR));
	read_on(fd);
}

static void takes_and_answers(int fd, long bytes) {
	say("right: %lu", recv_pattern(fd, (uint64_t)bytes, 30000, 1));
	char byte;
	report("the end", recv(fd, &byte, 1, 0));
	send_pattern(fd, (uint64_t)bytes, 50000, 2);
}

static void sends(int fd, long bytes) { send_pattern(fd, (uint64_t)bytes, 40000, 1); }

static void takes(int fd, long bytes) {
	say("right: %lu", recv_pattern(fd, (uint64_t)bytes + 1, 30000, 1));
	char byte;
	report("the end", recv(fd, &byte, 1, 0));
}

static const struct {
	const char *name;
	part *one, *other;
	long number;
} ends[] = {
    {"closed without data", nothing, only_reads, 0},
    {"closed without data, poll", nothing, polls_and_reads, 0},
    {"closed without data, both", nothing, nothing, 0},
    {"half closed first", shuts, only_reads, 0},
    {"half closed first, poll", shuts, polls_and_reads, 0},
    {"half closed by both", shuts, shuts, 0},
    {"sent, half closed, answered", sends_and_shuts, takes_and_answers, 1},
    {"much sent, half closed, answered", sends_and_shuts, takes_and_answers, 3000000},
    {"sent and closed", sends, takes, 1},
    {"much sent and closed", sends, takes, 1000000},
};

static void closes_after(int fd, long microseconds) {
	(void)fd;
	usleep((useconds_t)microseconds);
}

/* A server whose end comes a moment later, while the client makes its first calls: by SIGKILL, or by close and exit. What was not sent
 * cannot come; the client must see an end, soon. */
static void dies(bool kills) {
	enum { ROUNDS = 12 };
	int seen = 0, wrong = 0;
	for (int round = 0; round < ROUNDS; round++) {
		struct server server = start_server(PREFORK, 1, kills ? only_reads : closes_after, round * 150);
		int fd = connect_to_server(&server);
		pid_t killer = (pid_t)must("fork", fork());
		if (!killer) {
			close(fd); /* else it were the one who keeps the connection */
			usleep((useconds_t)round * 150);
			if (kills) kill(server.child.pid, SIGKILL);
			_exit(0);
		}
		char byte;
		ssize_t got;
		int64_t start = now_us();
		for (int i = 0; i < 100 && (got = send(fd, "x", 1, MSG_NOSIGNAL)) == 1; i++) {
		}
		got = recv(fd, &byte, 1, 0);
		seen += got == 0 || (got < 0 && (errno == ECONNRESET || errno == EPIPE));
		wrong += got > 0 || now_us() - start > 5000000;
		close(fd);
		waitpid(killer, NULL, 0);
		waitpid(server.child.pid, NULL, 0);
		close(server.child.transcript);
	}
	say("ends seen: %d, wrong ones: %d", seen, wrong);
}

/* The client goes while the server makes its first call. */
static void client_dies(void) {
	enum { ROUNDS = 12 };
	struct server server = start_server(FORKING, ROUNDS, echo, 1000);
	int begun[2];
	must("pipe", pipe(begun));
	for (int round = 0; round < ROUNDS; round++) {
		pid_t client = (pid_t)must("fork", fork());
		if (!client) {
			int fd = connect_to_server(&server);
			char block[5];
			must("write", write(begun[1], "b", 1));
			send_all(fd, "hello", 5);
			if (round % 3 == 2) recv_all(fd, block, 5);
			for (;;) pause();
		}
		char byte;
		must("read", read(begun[0], &byte, 1));
		usleep((useconds_t)round * 300);
		kill(client, SIGKILL);
		waitpid(client, NULL, 0);
	}
	int status;
	must("waitpid", waitpid(server.child.pid, &status, 0));
	say("the server has ended: %d", status);
	close(server.child.transcript);
}

static void short_ones(enum style style) {
	enum { MANY = 200 };
	struct server server = start_server(style, MANY, echo, 100);
	int good = 0, before = open_descriptors();
	for (int i = 0; i < MANY; i++) {
		int fd = connect_to_server(&server);
		good += through_echo(fd, 60, 60) == 60;
		close(fd);
	}
	say("%s: %d short ones, descriptors left: %s", style_names[style], good, open_descriptors() - before < 10 ? "few" : "many");
	finish_child("server", server.child);
}

/* What was sent is there although the process has gone. */
static void sends_and_exits(int fd, long bytes) {
	send_pattern(fd, (uint64_t)bytes, 10000, 1);
	exit(0);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (size_t i = 0; i < COUNT(ends); i++)
		for (enum style style = OWN; style < STYLES; style++) {
			say("%s by the server (%s)", ends[i].name, style_names[style]);
			talk(style, ends[i].one, ends[i].other, ends[i].number);
			say("%s by the client (%s)", ends[i].name, style_names[style]);
			talk(style, ends[i].other, ends[i].one, ends[i].number);
		}
	for (enum style style = OWN; style < STYLES; style++) {
		say("exit behind the data (%s)", style_names[style]);
		talk(style, sends_and_exits, takes, 300000);
		short_ones(style);
	}
	say("the server closes meanwhile");
	dies(false);
	say("the server is killed meanwhile");
	dies(true);
	say("clients are killed meanwhile");
	client_dies();
	return 0;
}

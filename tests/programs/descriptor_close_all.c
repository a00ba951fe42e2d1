/* Programs that close all they have: close_range(2), closefrom(3), or number by number up to the limit, as daemons and ssh do. Their sockets
 * are closed (the peer sees the end), and what is made afterwards works, also in other threads. Case B17.
 * close_range(2): CLOSE_RANGE_CLOEXEC closes nothing, CLOSE_RANGE_UNSHARE closes as ever. */
#include "common.h"
#include <linux/close_range.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define NUMBERS 4096 /* looked at, and closed one by one */

static int kept; /* the lowest number of the program's own: a peer's socket is put here before all above is closed */

static int open_numbers(void) {
	int count = 0;
	for (int fd = 0; fd < NUMBERS; fd++) count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

static void exchange(const char *what) {
	struct pair both = new_pair();
	char text[8] = "";
	send_all(both.client, "there", 5);
	size_t there = recv_all(both.server, text, 5);
	send_all(both.server, "back", 4);
	size_t back = recv_all(both.client, text, 4);
	say("%s: %zu there, %zu back", what, there, back);
	close_pair(both);
}

static void close_by_range(int first) { report("close_range", close_range((unsigned)first, ~0U, 0)); }

static void close_unshared(int first) { report("close_range UNSHARE", close_range((unsigned)first, ~0U, CLOSE_RANGE_UNSHARE)); }

static void close_from(int first) {
	closefrom(first);
	say("closefrom");
}

static void close_each(int first) {
	for (int fd = first; fd < NUMBERS; fd++) close(fd);
	say("close, each");
}

static void close_each_raw(int first) {
	for (int fd = first; fd < NUMBERS; fd++) syscall(SYS_close, fd);
	say("syscall(SYS_close), each");
}

static void close_each_open(int first) {
	for (int fd = first; fd < NUMBERS; fd++)
		if (fcntl(fd, F_GETFD) >= 0) close(fd);
	say("close, each that is open");
}

static void *echo(void *context) {
	int listener = *(int *)context;
	int server = (int)must("accept", accept(listener, NULL, NULL));
	char byte;
	while (recv(server, &byte, 1, 0) == 1) send_all(server, &byte, 1);
	close(server);
	return NULL;
}

/* Threads that sleep for sockets need descriptors of their own. */
static void with_a_thread(void) {
	int listener = new_listener(0, 8);
	pthread_t thread = start_thread(echo, &listener);
	int client = new_socket(0);
	must("connect", connect_to(client, name_of(listener)));
	struct pollfd both[2] = {{.fd = client, .events = POLLIN}, {.fd = listener, .events = POLLIN}};
	int echoed = 0;
	for (int i = 0; i < 20; i++) {
		char byte = (char)i;
		send_all(client, &byte, 1);
		must("poll", poll(both, 2, ARRIVAL_MS));
		echoed += recv(client, &byte, 1, 0) == 1 && byte == i;
		sleep_ms(i % 4 == 0); /* so that the other sleeps */
	}
	close(client);
	pthread_join(thread, NULL);
	close(listener);
	say("echoed by a thread: %d", echoed);
}

static void all_of(void (*close_all)(int)) {
	struct pair both = new_pair(), second = new_pair();
	int listener = new_listener(0, 8), before = open_numbers();
	struct address name = name_of(listener);
	must("dup2", dup2(both.server, kept));
	send_all(both.client, "last", 4);
	close_all(kept + 1);
	say("open numbers: %d less", before - open_numbers());
	char text[8];
	report("peer: data", (long)recv_all(kept, text, 8));
	report("peer: the end", recv(kept, text, 8, 0));
	report("the closed socket", send(both.client, "x", 1, MSG_NOSIGNAL));
	report("another", recv(second.server, text, 1, MSG_DONTWAIT));
	int late = new_socket(0);
	report("nobody listens any more", connect_to(late, name));
	close(late);
	must("dup2", dup2(0, kept));
	exchange("afterwards");
	with_a_thread();
	say("open numbers: %d less", before - open_numbers());
}

static void on_exec(void) {
	struct pair both = new_pair();
	say("close-on-exec: %s, %s", yes_no(is_cloexec(both.client)), yes_no(is_cloexec(both.server)));
	report("close_range CLOEXEC", close_range((unsigned)kept, ~0U, CLOSE_RANGE_CLOEXEC));
	say("close-on-exec: %s, %s", yes_no(is_cloexec(both.client)), yes_no(is_cloexec(both.server)));
	report("close_range CLOEXEC|UNSHARE", close_range((unsigned)kept, ~0U, CLOSE_RANGE_CLOEXEC | CLOSE_RANGE_UNSHARE));
	char byte;
	report("send", send(both.client, "x", 1, 0));
	report("recv", recv(both.server, &byte, 1, 0));
	report("a part of the numbers", close_range((unsigned)both.client, (unsigned)both.client, 0));
	report("peer", recv(both.server, &byte, 1, 0));
	report("no numbers", close_range(9, 8, 0));
	report("unknown flags", close_range((unsigned)kept, ~0U, 64));
	report("close", close(both.server));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	report("close_range at the start", close_range(3, ~0U, 0));
	kept = (int)must("dup", dup(0));
	exchange("first");
	closefrom(kept + 1);
	exchange("second");
	all_of(close_by_range);
	all_of(close_from);
	all_of(close_each);
	all_of(close_each_raw);
	all_of(close_each_open);
	all_of(close_unshared);
	on_exec();
	struct rlimit limit = {.rlim_cur = 300, .rlim_max = 300};
	must("setrlimit", setrlimit(RLIMIT_NOFILE, &limit));
	say("-- near a limit");
	all_of(close_by_range);
	all_of(close_each);
	all_of(close_from);
	return 0;
}

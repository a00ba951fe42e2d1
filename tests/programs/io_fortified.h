/* The body of io_fortified and io_fortified_3, which are compiled with other flags. */
#include "common.h"
#include <sys/wait.h>

#define ROOM 16

static volatile size_t wanted = 10; /* the compiler must not know */
static struct pair both;
static char *room;

static void give(const char *text) {
	send_all(both.client, text, strlen(text));
	wait_bytes(both.server, strlen(text));
}

static void show(const char *what, ssize_t got) {
	report(what, got);
	say("  %.*s", got > 0 ? (int)got : 0, room);
}

static void calls(void) {
	char array[ROOM];
	struct pollfd one = {.fd = both.server, .events = POLLIN};
	struct timespec none = {0};
	nfds_t entries = wanted / 10;
	report("poll, nothing", poll(&one, entries, 0));
	give("0123456789");
	report("poll", poll(&one, entries, -1));
	say("  %s", event_names(one.revents));
	report("ppoll", ppoll(&one, entries, &none, NULL));
	ssize_t got = read(both.server, array, wanted / 2);
	say("read: %zd %.*s", got, (int)got, array);
	show("recv", recv(both.server, room, wanted / 5, 0));
	show("recvfrom", recvfrom(both.server, room, wanted, 0, NULL, NULL));
	report("recv, nothing", recv(both.server, room, wanted, MSG_DONTWAIT));
	report("pread", pread(both.server, room, wanted, 0));
	report("fread by fdopen", 0);
	give("abcdefghij");
	FILE *stream = fdopen(dup(both.server), "r+");
	setvbuf(stream, NULL, _IONBF, 0);
	report("fread", (long)fread(room, 1, wanted, stream));
	say("  %.10s", room);
	fclose(stream);
}

/* In a process of its own, which SIGABRT ends before anything is read. */
static void too_much(const char *what, int kind) {
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		struct pair own = new_pair();
		struct pollfd one = {.fd = own.server, .events = POLLIN};
		char array[ROOM];
		size_t much = wanted * 4;
		close(2);
		switch (kind) {
		case 0: read(own.server, array, much); break;
		case 1: recv(own.server, array, much, MSG_DONTWAIT); break;
		case 2: recvfrom(own.server, array, much, MSG_DONTWAIT, NULL, NULL); break;
		case 3: poll(&one, much, 0); break;
		default: pread(own.server, array, much, 0);
		}
		_exit(array[0] == 1);
	}
	int status = 0;
	waitpid(child, &status, 0);
	say("%s: %s", what, WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "no signal");
}

int main(int argc, char **argv) {
	begin(argc, argv);
	both = new_pair();
	room = malloc(ROOM);
	calls();
	too_much("read", 0);
	too_much("recv", 1);
	too_much("recvfrom", 2);
	too_much("poll", 3);
	too_much("pread", 4);
	free(room);
	return 0;
}

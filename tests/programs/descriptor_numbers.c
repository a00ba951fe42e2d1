/* socket(2), accept(2), open(2), dup(2): always the lowest number not open, also across sockets, pipes and files; a number
 * that was a socket and comes back as a file is a file (B18); numbers of the library are not in the way. Case B32. */
#include "common.h"

static int lowest(void) {
	int fd = (int)must("dup", dup(0));
	close(fd);
	return fd;
}

static void expect(const char *what, int fd, int number) { say("%s: lowest free number: %s", what, yes_no(fd == number)); }

static int open_count(void) {
	int count = 0;
	for (int fd = 0; fd < 1024; fd++) count += fcntl(fd, F_GETFD) >= 0;
	return count;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int base = lowest(), before = open_count();
	int listener = new_socket(0);
	expect("socket", listener, base);
	must("bind", bind_to(listener, local));
	must("listen", listen(listener, 8));
	int client = new_socket(0);
	expect("second socket", client, base + 1);
	must("connect", connect_to(client, name_of(listener)));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	expect("accept", server, base + 2);
	int ends[2];
	must("pipe", pipe(ends));
	expect("pipe", ends[0], base + 3);
	expect("pipe's other end", ends[1], base + 4);
	say("low numbers in use: %d more", open_count() - before);

	close(client);
	int file = (int)must("open", open("/dev/zero", O_RDWR));
	expect("file in the place of a socket", file, base + 1);
	char byte = 1;
	report("read", read(file, &byte, 1));
	say("from the file: %d", byte);
	report("write", write(file, &byte, 1));
	report("recv", recv(file, &byte, 1, 0));
	say("poll: %s", event_names(events_now(file, POLLIN | POLLOUT)));
	report("peer of the closed socket", recv(server, &byte, 1, 0));
	close(file);
	int again = new_socket(0);
	expect("socket in the place of a file", again, base + 1);
	must("connect", connect_to(again, name_of(listener)));
	close(server);
	server = (int)must("accept", accept(listener, NULL, NULL));
	expect("accept in the place of a closed one", server, base + 2);
	send_all(again, "n", 1);
	report("recv", recv(server, &byte, 1, 0));

	int inside = dup(again);
	FILE *stream = fdopen(inside, "r+");
	fclose(stream); /* closes inside libc */
	file = (int)must("open", open("/dev/zero", O_RDWR));
	expect("file in the place of a socket that fclose closed", file, inside);
	byte = 1;
	report("read", read(file, &byte, 1));
	say("from the file: %d", byte);
	close(file);
	report("the socket lives on", send(again, "n", 1, 0));
	report("recv", recv(server, &byte, 1, 0));

	for (int fd = base; fd < base + 5; fd++) close(fd);
	say("low numbers in use: %d more", open_count() - before);
	expect("after all", lowest(), base);

	/* the program takes a number of its own choice, as shells and loggers do */
	int chosen = new_socket(0);
	must("dup2", dup2(chosen, 500));
	close(chosen);
	must("bind", bind_to(500, local));
	must("listen", listen(500, 4));
	struct pair both = connect_pair(500);
	send_all(both.server, "n", 1);
	report("recv", recv(both.client, &byte, 1, 0));
	return 0;
}

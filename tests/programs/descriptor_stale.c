/* Numbers that are closed inside libc: fclose(3) of a stream on a socket, the resolver's own sockets. What comes back under them is what the
 * kernel says it is, and live sockets stay what they are. Case B18. */
#include "common.h"
#include <netdb.h>

static void a_file(const char *what, int number) {
	int file = (int)must("open", open("/dev/zero", O_RDWR));
	char byte = 1;
	say("%s: the number came back: %s", what, yes_no(file == number));
	report("read", read(file, &byte, 1));
	say("  %d", byte);
	report("recv", recv(file, &byte, 1, 0));
	report("lseek", lseek(file, 0, SEEK_SET));
	close(file);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	char text[16] = "";

	say("-- a stream on a connection");
	int number = dup(both.client);
	FILE *stream = fdopen(number, "r+");
	report("fputs", fputs("by stdio\n", stream) < 0 ? -1 : 0);
	report("fflush", fflush(stream));
	report("recv", recv(both.server, text, 9, MSG_WAITALL));
	report("fclose", fclose(stream));
	a_file("after fclose", number);
	report("the connection lives", send(both.client, "x", 1, 0));
	report("recv", recv(both.server, text, 1, 0));

	say("-- a stream made before the connection");
	int listener = new_listener(0, 4);
	number = new_socket(0);
	stream = fdopen(number, "r+");
	must("connect", connect_to(number, name_of(listener)));
	int server = (int)must("accept", accept(listener, NULL, NULL));
	report("send", send(number, "y", 1, 0));
	report("recv", recv(server, text, 1, 0));
	report("fclose", fclose(stream));
	report("peer: the end", recv(server, text, 1, 0));
	close(server);
	a_file("after fclose", number);

	say("-- mkstemp");
	int second = dup(both.client);
	stream = fdopen(second, "w");
	fclose(stream);
	char temporary[] = "/tmp/stale-XXXXXX";
	int file = (int)must("mkstemp", mkstemp(temporary));
	say("the number came back: %s", yes_no(file == second));
	report("write", write(file, "file", 4));
	report("pread", pread(file, text, 4, 0));
	report("lseek", lseek(file, 1, SEEK_SET));
	report("close", close(file));
	unlink(temporary);

	say("-- the resolver");
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	int good = 0;
	for (int i = 0; i < 1000; i++) {
		if (getaddrinfo("localhost", "80", &hints, &found)) continue;
		good++;
		freeaddrinfo(found);
	}
	say("found: %d", good);
	struct address name = name_of(both.client);
	char host[200];
	report("getnameinfo", getnameinfo(sockaddr_of(&name), name.length, host, sizeof host, NULL, 0, NI_NUMERICHOST));
	report("the connection lives", send(both.client, "z", 1, 0));
	report("recv", recv(both.server, text, 1, 0));
	FILE *command = popen("echo by a child", "r");
	say("popen: %s", fgets(text, sizeof text, command));
	report("pclose", pclose(command));
	report("the connection lives", send(both.server, "z", 1, 0));
	report("recv", recv(both.client, text, 1, 0));
	return 0;
}

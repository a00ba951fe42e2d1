/* A plug-in, loaded with RTLD_LOCAL, RTLD_GLOBAL and RTLD_DEEPBIND (dlopen(3)), makes a connection and gives it to the main program, which
 * uses it and closes it. With RTLD_DEEPBIND its calls go to libc itself. Case B20. */
// needs: plugin_connect
#include "common.h"
#include <dlfcn.h>
#include <libgen.h>

static void with(const char *what, const char *path, int flags) {
	say("-- %s", what);
	void *plugin = dlopen(path, flags);
	if (!plugin) {
		say("FAILED %s", dlerror());
		exit(1);
	}
	int (*join)(const struct sockaddr *, socklen_t) = (int (*)(const struct sockaddr *, socklen_t))dlsym(plugin, "plugin_connect");
	ssize_t (*tell)(int, const char *) = (ssize_t(*)(int, const char *))dlsym(plugin, "plugin_say");
	ssize_t (*hear)(int, char *, size_t) = (ssize_t(*)(int, char *, size_t))dlsym(plugin, "plugin_hear");
	int (*leave)(int) = (int (*)(int))dlsym(plugin, "plugin_close");
	int listener = new_listener(0, 8);
	struct address name = name_of(listener);
	for (int closes = 0; closes < 2; closes++) {
		char text[16] = "";
		int client = report_descriptor("plug-in connects", join(sockaddr_of(&name), name.length));
		int server = report_descriptor("accept", accept(listener, NULL, NULL));
		report("plug-in says", tell(client, "plug-in"));
		report("main hears", (long)recv_all(server, text, 7));
		report("main says", send(client, "main", 4, 0));
		report("main hears", (long)recv_all(server, text, 4));
		report("server says", send(server, "server", 6, 0));
		wait_for(client, POLLIN);
		report("plug-in hears", hear(client, text, 3));
		report("main hears", recv(client, text + 3, 3, MSG_WAITALL));
		say("%.6s", text);
		report(closes ? "plug-in closes" : "main closes", closes ? leave(client) : close(client));
		report("server: the end", recv(server, text, 1, 0));
		close(server);
		/* under the number is something else now */
		int file = (int)must("open", open("/dev/zero", O_RDONLY));
		text[0] = 1;
		report("the number as a file", read(file, text, 1));
		say("%d", text[0]);
		close(file);
	}
	close(listener);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	char path[PATH_MAX];
	path[must("readlink", readlink("/proc/self/exe", path, sizeof path - 20))] = 0;
	strcat(dirname(path), "/plugin_connect");
	struct pair both = new_pair();
	char byte;
	report("send", send(both.client, "x", 1, 0));
	report("recv", recv(both.server, &byte, 1, 0));
	with("RTLD_LOCAL", path, RTLD_NOW | RTLD_LOCAL);
	with("RTLD_GLOBAL", path, RTLD_NOW | RTLD_GLOBAL);
	return 0;
}

/* As descriptor_plugin, with a plug-in that is loaded with RTLD_DEEPBIND, whose calls go to libc itself: its connections are TCP's, and the
 * main program uses them as any. Case B20. */
// needs: plugin_connect
#include "common.h"
#include <dlfcn.h>
#include <libgen.h>

int main(int argc, char **argv) {
	begin(argc, argv);
	char path[PATH_MAX], text[16] = "";
	path[must("readlink", readlink("/proc/self/exe", path, sizeof path - 20))] = 0;
	strcat(dirname(path), "/plugin_connect");
	void *plugin = dlopen(path, RTLD_NOW | RTLD_DEEPBIND);
	if (!plugin) {
		say("FAILED %s", dlerror());
		return 1;
	}
	int (*join)(const struct sockaddr *, socklen_t) = (int (*)(const struct sockaddr *, socklen_t))dlsym(plugin, "plugin_connect");
	ssize_t (*tell)(int, const char *) = (ssize_t(*)(int, const char *))dlsym(plugin, "plugin_say");
	ssize_t (*hear)(int, char *, size_t) = (ssize_t(*)(int, char *, size_t))dlsym(plugin, "plugin_hear");
	int (*leave)(int) = (int (*)(int))dlsym(plugin, "plugin_close");
	int listener = new_listener(0, 8);
	struct address name = name_of(listener);
	for (int round = 0; round < 3; round++) {
		int client = report_descriptor("plug-in connects", join(sockaddr_of(&name), name.length));
		int server = report_descriptor("accept", accept(listener, NULL, NULL));
		report("plug-in says", tell(client, "plug-in"));
		report("main hears", (long)recv_all(server, text, 7));
		report("main says", send(client, "main", 4, 0));
		report("main hears", (long)recv_all(server, text, 4));
		report("main says back", send(server, "server", 6, 0));
		report("plug-in hears", hear(client, text, 3));
		report("main hears", recv(client, text + 3, 3, MSG_WAITALL));
		say("%.6s", text);
		report("main closes", round ? leave(client) : close(client));
		report("the end", recv(server, text, 1, 0));
		/* a socket of the main program, closed by the plug-in past it, under whose number comes a plug-in's */
		report("close", round == 1 ? leave(server) : close(server));
	}
	struct pair both = new_pair();
	report("send", send(both.client, "x", 1, 0));
	report("recv", recv(both.server, text, 1, 0));
	close_pair(both);
	return 0;
}

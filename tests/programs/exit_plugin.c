/* A library whose destructor, which runs after those of libraries that stand before it, says good-bye on a socket of the program's. */
// flags: -shared -fPIC
#include <string.h>
#include <sys/socket.h>

int exit_plugin_socket = -1;

__attribute__((destructor)) static void good_bye(void) {
	if (exit_plugin_socket >= 0) send(exit_plugin_socket, "destructor ", strlen("destructor "), MSG_NOSIGNAL);
}

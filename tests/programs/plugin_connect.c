/* A plug-in of descriptor_plugin: makes a connection with the libc that it finds, and talks over it. */
// flags: -shared -fPIC
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int plugin_connect(const struct sockaddr *address, socklen_t length);
ssize_t plugin_say(int fd, const char *text);
ssize_t plugin_hear(int fd, char *text, size_t room);
int plugin_close(int fd);

int plugin_connect(const struct sockaddr *address, socklen_t length) {
	int fd = socket(address->sa_family, SOCK_STREAM, 0);
	if (fd >= 0 && connect(fd, address, length)) {
		close(fd);
		return -1;
	}
	return fd;
}

ssize_t plugin_say(int fd, const char *text) { return send(fd, text, strlen(text), 0); }

ssize_t plugin_hear(int fd, char *text, size_t room) { return read(fd, text, room); }

int plugin_close(int fd) { return close(fd); }

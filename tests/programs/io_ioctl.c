/* ioctl(2) on a connection: FIONREAD counts what can be read, 0 bytes included; FIONBIO is what F_GETFL shows, for all duplicates;
 * SIOCATMARK, FIOASYNC, FIOGETOWN and the questions about interfaces are answered as ever. Case B16. */
#include "common.h"
#include <linux/sockios.h>
#include <net/if.h>

static int ask(const char *what, int fd, unsigned long request, int value) {
	report(what, ioctl(fd, request, &value));
	return value;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	char text[100];
	int copy = dup(both.server);
	say("%d", ask("FIONREAD, nothing", both.server, FIONREAD, 77));
	fill_pattern(text, sizeof text, 0, 1);
	send_all(both.client, text, sizeof text);
	wait_bytes(both.server, sizeof text);
	say("%d", ask("FIONREAD", both.server, FIONREAD, 77));
	say("%d", ask("FIONREAD of the copy", copy, FIONREAD, 77));
	say("%d", ask("SIOCINQ", both.server, SIOCINQ, 77));
	report("half of it", recv(both.server, text, 50, 0));
	say("%d", ask("FIONREAD", both.server, FIONREAD, 77));
	report("the rest", recv(both.server, text, 50, 0));
	ask("FIONBIO on", both.server, FIONBIO, 1);
	say("nonblocking: %s, its copy: %s", yes_no(is_nonblocking(both.server)), yes_no(is_nonblocking(copy)));
	report("recv", recv(both.server, text, 1, 0));
	report("recv on the copy", recv(copy, text, 1, 0));
	ask("FIONBIO off", copy, FIONBIO, 0);
	say("nonblocking: %s, its copy: %s", yes_no(is_nonblocking(both.server)), yes_no(is_nonblocking(copy)));
	int left = -1;
	report("SIOCOUTQ", ioctl(both.client, SIOCOUTQ, &left));
	say("within what was sent: %s", yes_no(left >= 0 && left <= (int)sizeof text));
	say("%d", ask("SIOCOUTQNSD", both.client, SIOCOUTQNSD, 77));
	say("%d", ask("SIOCATMARK", both.server, SIOCATMARK, 77));
	say("%d", ask("FIOASYNC on", both.server, FIOASYNC, 1));
	say("async: %s", yes_no(fcntl(both.server, F_GETFL) & O_ASYNC));
	say("%d", ask("FIOASYNC off", both.server, FIOASYNC, 0));
	say("async: %s", yes_no(fcntl(both.server, F_GETFL) & O_ASYNC));
	ask("FIOSETOWN", both.server, FIOSETOWN, getpid());
	say("mine: %s", yes_no(ask("FIOGETOWN", both.server, FIOGETOWN, 0) == getpid()));
	ask("FIOCLEX", both.server, FIOCLEX, 0);
	say("close-on-exec: %s, its copy: %s", yes_no(is_cloexec(both.server)), yes_no(is_cloexec(copy)));
	ask("FIONCLEX", both.server, FIONCLEX, 0);
	say("close-on-exec: %s", yes_no(is_cloexec(both.server)));
	report("FIONREAD to NULL", ioctl(both.server, FIONREAD, NULL));
	report("FIONBIO of NULL", ioctl(both.server, FIONBIO, NULL));
	report("unknown", ioctl(both.server, 0x1234, text));
	report("TCGETS", ioctl(both.server, 0x5401, text));
	struct ifreq interface = {.ifr_name = "lo"};
	report("SIOCGIFINDEX", ioctl(both.server, SIOCGIFINDEX, &interface));
	say("index is there: %s", yes_no(interface.ifr_ifindex > 0));
	struct ifconf list = {0};
	report("SIOCGIFCONF", ioctl(both.server, SIOCGIFCONF, &list));
	say("some: %s", yes_no(list.ifc_len > 0));
	int listener = new_listener(0, 4);
	report("FIONREAD of a listener", ioctl(listener, FIONREAD, &left));
	report("SIOCOUTQ of a listener", ioctl(listener, SIOCOUTQ, &left));
	report("SIOCATMARK of a listener", ioctl(listener, SIOCATMARK, &left));
	close(both.client);
	wait_for(both.server, POLLRDHUP);
	say("%d", ask("FIONREAD at the end", both.server, FIONREAD, 77));
	close(copy);
	close(both.server);
	report("FIONREAD of a closed number", ioctl(both.server, FIONREAD, &left));
	return 0;
}

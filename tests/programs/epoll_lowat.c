/* epoll(7), socket(7): SO_RCVLOWAT holds back EPOLLIN as it does poll's, level-triggered and edge-triggered; a mark that is lowered tells at
 * once. Case B60. */
#include "common.h"
#include <sys/epoll.h>

static struct pair both;

static void set_low(int value) { must("SO_RCVLOWAT", setsockopt(both.server, SOL_SOCKET, SO_RCVLOWAT, &value, sizeof value)); }

static void look(const char *what, int set, int ms) {
	struct epoll_event event = {0};
	int found = (int)must("epoll_wait", epoll_wait(set, &event, 1, ms));
	say("  %s: %s", what, found ? event_names((short)event.events) : "nothing");
}

static void play(const char *what, uint32_t mode) {
	say("%s", what);
	int set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN | mode};
	set_low(10);
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, both.server, &event));
	send_all(both.client, "123456789", 9);
	wait_bytes(both.server, 9);
	look("9 of 10", set, 150);
	send_all(both.client, "0", 1);
	look("10 of 10", set, ARRIVAL_MS);
	look("once more", set, 50);
	send_all(both.client, "1", 1);
	wait_bytes(both.server, 11);
	look("one more byte", set, 150);
	char text[20];
	report("  recv", recv(both.server, text, sizeof text, 0));
	look("nothing there", set, 50);
	close(set);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	both = new_pair();
	play("level-triggered", 0);
	play("edge-triggered", EPOLLET);
	int set = (int)must("epoll_create1", epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, both.server, &event));
	send_all(both.client, "abc", 3);
	wait_bytes(both.server, 3);
	look("3 of 10", set, 50);
	set_low(3);
	look("3 of 3", set, ARRIVAL_MS);
	return 0;
}

/* Wrong arguments of epoll_ctl and epoll_wait. */
#include "epoll.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int set = new_set();
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 's'};
	report("create -1", epoll_create(-1));
	report("create 0", epoll_create(0));
	report("create1 with a wrong flag", epoll_create1(12345));
	report("MOD of no member", control(set, EPOLL_CTL_MOD, both.server, EPOLLIN, 's'));
	report("DEL of no member", epoll_ctl(set, EPOLL_CTL_DEL, both.server, &event));
	report("ADD with NULL", epoll_ctl(set, EPOLL_CTL_ADD, both.server, NULL));
	report("no operation", epoll_ctl(set, 77, both.server, &event));
	report("no set", epoll_ctl(both.client, EPOLL_CTL_ADD, both.server, &event));
	report("no descriptor as a set", epoll_ctl(-1, EPOLL_CTL_ADD, both.server, &event));
	report("no descriptor", epoll_ctl(set, EPOLL_CTL_ADD, -1, &event));
	report("a closed set", epoll_ctl(999, EPOLL_CTL_ADD, both.server, &event));
	report("ADD", epoll_ctl(set, EPOLL_CTL_ADD, both.server, &event));
	report("ADD again", epoll_ctl(set, EPOLL_CTL_ADD, both.server, &event));
	report("MOD with NULL", epoll_ctl(set, EPOLL_CTL_MOD, both.server, NULL));
	report("DEL", epoll_ctl(set, EPOLL_CTL_DEL, both.server, NULL));
	report("DEL again", epoll_ctl(set, EPOLL_CTL_DEL, both.server, NULL));
	report("EXCLUSIVE and ONESHOT", control(set, EPOLL_CTL_ADD, both.server, EPOLLIN | EPOLLEXCLUSIVE | EPOLLONESHOT, 's'));
	report("EXCLUSIVE and RDHUP", control(set, EPOLL_CTL_ADD, both.server, EPOLLIN | EPOLLEXCLUSIVE | EPOLLRDHUP, 's'));
	report("MOD to EXCLUSIVE", control(set, EPOLL_CTL_MOD, both.server, EPOLLIN | EPOLLEXCLUSIVE, 's'));
	report("EXCLUSIVE", control(set, EPOLL_CTL_ADD, both.server, EPOLLIN | EPOLLEXCLUSIVE | EPOLLET, 's'));
	report("MOD of EXCLUSIVE", control(set, EPOLL_CTL_MOD, both.server, EPOLLIN, 's'));
	struct epoll_event events[4];
	report("maxevents 0", epoll_wait(set, events, 0, 0));
	report("maxevents -1", epoll_wait(set, events, argument(9, -1), 0));
	report("maxevents too many", epoll_wait(set, events, argument(9, INT_MAX), 0));
	report("wait in no set", epoll_wait(both.server, events, 4, 0));
	report("wait in nothing", epoll_wait(-1, events, 4, 0));
	report("nothing", epoll_wait(set, events, 4, 0));
	send_all(both.client, "a", 1);
	report("data", epoll_wait(set, events, 4, ARRIVAL_MS));
	struct timespec wrong = {.tv_sec = 0, .tv_nsec = 1000000000};
	report("wrong time", epoll_pwait2(set, events, 4, &wrong, NULL));
	wrong = (struct timespec){.tv_sec = -1};
	report("negative time", epoll_pwait2(set, events, 4, &wrong, NULL));
	close_pair(both);
	report("all closed", epoll_wait(set, events, 4, 0));
	return 0;
}

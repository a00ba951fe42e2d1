/* Waiting for datagrams: blocking, with time-outs, nonblocking, poll, select, epoll, several threads. */
#include "datagram.h"

#include <sys/epoll.h>

static int one, two;
static struct address name_one, name_two;

static void *send_later(void *text) {
	sleep_ms(60);
	must("sendto", send_to(one, text, name_two));
	return NULL;
}

static void blocking(void) {
	char text[50] = {0};
	pthread_t thread = start_thread(send_later, "later");
	report("recv waits", recv(two, text, sizeof text, 0));
	say("\"%s\"", text);
	pthread_join(thread, NULL);
	struct timeval time = {0, 80000};
	must("SO_RCVTIMEO", setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	int64_t start = now_us();
	report("recv with a time-out", recv(two, text, sizeof text, 0));
	report_not_early("SO_RCVTIMEO", start, 75);
	thread = start_thread(send_later, "in time");
	time = (struct timeval){20, 0};
	must("SO_RCVTIMEO", setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	report("in time", recv(two, text, sizeof text, 0));
	pthread_join(thread, NULL);
	time = (struct timeval){0, 0};
	must("SO_RCVTIMEO", setsockopt(two, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	set_nonblocking(two, true);
	report("nonblocking", recv(two, text, sizeof text, 0));
	set_nonblocking(two, false);
	report("MSG_DONTWAIT", recv(two, text, sizeof text, MSG_DONTWAIT));
	int nonblocking = datagram_socket(SOCK_NONBLOCK | SOCK_CLOEXEC);
	say("flags: %d %d", is_nonblocking(nonblocking), is_cloexec(nonblocking));
	report("before it has a port", recv(nonblocking, text, sizeof text, 0));
	close(nonblocking);
}

static void polls(void) {
	char text[50];
	say("before: %s", event_names(events_now(two, ALL_EVENTS)));
	pthread_t thread = start_thread(send_later, "poll");
	struct pollfd set[2] = {{.fd = one, .events = POLLIN}, {.fd = two, .events = POLLIN}};
	report("poll", poll(set, 2, ARRIVAL_MS));
	say("%s %s", event_names(set[0].revents), event_names(set[1].revents));
	pthread_join(thread, NULL);
	say("now: %s", event_names(events_now(two, ALL_EVENTS)));
	report("poll again", poll(set, 2, 0));
	recv(two, text, sizeof text, 0);
	report("when it was read", poll(set, 2, 0));
	int64_t start = now_us();
	report("for nothing", poll(set, 2, 50));
	report_not_early("poll", start, 50);
	thread = start_thread(send_later, "select");
	fd_set readable, writable;
	FD_ZERO(&readable);
	FD_ZERO(&writable);
	FD_SET(two, &readable);
	FD_SET(one, &readable);
	report("select", select((one > two ? one : two) + 1, &readable, NULL, NULL, NULL));
	say("two is readable: %s, one: %s", yes_no(FD_ISSET(two, &readable)), yes_no(FD_ISSET(one, &readable)));
	pthread_join(thread, NULL);
	FD_SET(two, &writable);
	FD_SET(two, &readable);
	report("select of both", select(two + 1, &readable, &writable, NULL, NULL));
	recv(two, text, sizeof text, 0);
}

static void look_at(const char *what, int set, int time) {
	struct epoll_event events[4];
	int found = epoll_wait(set, events, 4, time);
	if (found == 1)
		say("%s: %s of %d", what, event_names((short)events[0].events), (int)events[0].data.u32);
	else
		say("%s: %d", what, found);
}

static void change(int set, int how, int fd, uint32_t events, uint32_t data) {
	struct epoll_event event = {.events = events, .data.u32 = data};
	must("epoll_ctl", epoll_ctl(set, how, fd, &event));
}

static void epolls(void) {
	char text[50];
	int set = epoll_create1(0);
	change(set, EPOLL_CTL_ADD, two, EPOLLIN, 7);
	look_at("nothing", set, 0);
	pthread_t thread = start_thread(send_later, "epoll");
	look_at("level", set, ARRIVAL_MS);
	pthread_join(thread, NULL);
	look_at("still", set, 0);
	recv(two, text, sizeof text, 0);
	look_at("when it was read", set, 30);
	change(set, EPOLL_CTL_MOD, two, EPOLLIN | EPOLLOUT, 8);
	look_at("writable", set, ARRIVAL_MS);
	send_to(one, "both", name_two);
	wait_for(two, POLLIN);
	look_at("both", set, ARRIVAL_MS);
	recv(two, text, sizeof text, 0);
	change(set, EPOLL_CTL_MOD, two, EPOLLIN | EPOLLET, 9);
	look_at("edge: nothing", set, 30);
	for (int i = 0; i < 3; i++) {
		send_to(one, "edge", name_two);
		look_at("edge", set, ARRIVAL_MS);
		look_at("once", set, 30);
	}
	recv(two, text, sizeof text, 0);
	look_at("two are left, without an edge", set, 30);
	recv(two, text, sizeof text, 0);
	recv(two, text, sizeof text, 0);
	change(set, EPOLL_CTL_MOD, two, EPOLLIN | EPOLLONESHOT, 10);
	send_to(one, "shot", name_two);
	look_at("one shot", set, ARRIVAL_MS);
	send_to(one, "shot", name_two);
	look_at("no more", set, 30);
	change(set, EPOLL_CTL_MOD, two, EPOLLIN | EPOLLONESHOT, 11);
	look_at("armed again", set, ARRIVAL_MS);
	recv(two, text, sizeof text, 0);
	recv(two, text, sizeof text, 0);
	change(set, EPOLL_CTL_DEL, two, 0, 0);
	send_to(one, "gone", name_two);
	look_at("taken out", set, 30);
	wait_for(two, POLLIN);
	recv(two, text, sizeof text, 0);
	int later = datagram_socket(0);
	change(set, EPOLL_CTL_ADD, later, EPOLLIN, 12);
	must("bind", bind_to(later, local));
	send_to(one, "bound later", name_of(later));
	look_at("bound after it was put in", set, ARRIVAL_MS);
	close(later);
	look_at("closed", set, 30);
	close(set);
}

enum { READERS = 4, DATAGRAMS = 400 };
static int counted;

static void *reader(void *unused) {
	char text[20];
	(void)unused;
	for (;;) {
		ssize_t got = recv(two, text, sizeof text, 0);
		must("recv", got);
		if (got == 0) return NULL;
		__atomic_add_fetch(&counted, 1, __ATOMIC_SEQ_CST);
	}
}

static void threads(void) {
	pthread_t all[READERS];
	for (int i = 0; i < READERS; i++) all[i] = start_thread(reader, NULL);
	for (int i = 0; i < DATAGRAMS; i++) {
		must("sendto", send_to(one, "work", name_two));
		/* None is lost: never more than a few wait. */
		while (i - __atomic_load_n(&counted, __ATOMIC_SEQ_CST) > 20) usleep(100);
	}
	for (int i = 0; i < READERS; i++) must("sendto", send_to(one, "", name_two));
	for (int i = 0; i < READERS; i++) pthread_join(all[i], NULL);
	say("read by %d threads: %d", READERS, counted);
}

static void nothing_happens(int signal) { (void)signal; }

static void signals(void) {
	struct sigaction action = {.sa_handler = nothing_happens};
	struct itimerval soon = {.it_value = {0, 60000}};
	char text[8];
	must("sigaction", sigaction(SIGALRM, &action, NULL));
	must("setitimer", setitimer(ITIMER_REAL, &soon, NULL));
	report("interrupted", recv(two, text, sizeof text, 0));
	action.sa_flags = SA_RESTART;
	must("sigaction", sigaction(SIGALRM, &action, NULL));
	must("setitimer", setitimer(ITIMER_REAL, &soon, NULL));
	pthread_t thread = start_thread(send_later, "restart");
	report("restarted", recv(two, text, sizeof text, 0));
	pthread_join(thread, NULL);
	sleep_ms(80);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	one = named_socket(&name_one);
	two = named_socket(&name_two);
	blocking();
	polls();
	epolls();
	threads();
	signals();
	return 0;
}

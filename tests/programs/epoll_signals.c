/* A signal ends epoll_wait with EINTR, whatever SA_RESTART says; the masks of epoll_pwait and epoll_pwait2 count for the wait alone. */
#include "epoll.h"

static volatile sig_atomic_t handled;

static void handle(int signal) {
	(void)signal;
	handled++;
}

static void *kick(void *thread) {
	sleep_ms(100);
	pthread_kill(*(pthread_t *)thread, SIGUSR1);
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	struct pair both = new_pair();
	int set = new_set();
	add(set, both.server, EPOLLIN, 's');
	pthread_t main_thread = pthread_self(), kicker;
	struct epoll_event events[4];
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction action = {.sa_handler = handle, .sa_flags = restart ? SA_RESTART : 0};
		must("sigaction", sigaction(SIGUSR1, &action, NULL));
		kicker = start_thread(kick, &main_thread);
		report(restart ? "SA_RESTART" : "no SA_RESTART", epoll_wait(set, events, 4, ARRIVAL_MS));
		pthread_join(kicker, NULL);
	}
	sigset_t blocked, none, before;
	sigemptyset(&none);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	must("pthread_sigmask", pthread_sigmask(SIG_BLOCK, &blocked, &before));
	raise(SIGUSR1);
	handled = 0;
	report("pending and blocked", epoll_wait(set, events, 4, 50));
	say("handled: %d", (int)handled);
	report("pending, let in by the mask", epoll_pwait(set, events, 4, ARRIVAL_MS, &none));
	say("handled: %d", (int)handled);
	raise(SIGUSR1);
	send_all(both.client, "a", 1);
	wait_bytes(both.server, 1);
	report("pending, and data", epoll_pwait(set, events, 4, ARRIVAL_MS, &none));
	say("handled: %d", (int)handled);
	must("recv", recv(both.server, &(char){0}, 1, 0));
	report("pending still", epoll_pwait2(set, events, 4, &(struct timespec){.tv_sec = 10}, &none));
	say("handled: %d", (int)handled);
	int64_t start = now_us();
	report("250 us", epoll_pwait2(set, events, 4, &(struct timespec){.tv_nsec = 250000}, NULL));
	say("not early: %s, in time: %s", yes_no(now_us() - start >= 250), yes_no(now_us() - start < 100000));
	start = now_us();
	report("30 ms", epoll_wait(set, events, 4, 30));
	report_not_early("30 ms", start, 30);
	close_pair(both);
	return 0;
}

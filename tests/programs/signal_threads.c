/* signal(7): a signal to the process ends the call of a thread that does not block it, and no other; one that is blocked everywhere waits; a
 * handler that goes back to what it was set to ends nothing. Case B39. */
#include "signal_calls.h"

static sigset_t one_signal;
static volatile bool ended;

static void *blocked_reader(void *unused) {
	pthread_sigmask(SIG_BLOCK, &one_signal, NULL);
	char text[4];
	long got = recv(both.server, text, 4, MSG_WAITALL);
	say("the thread that blocks it: recv %ld %s", got, got < 0 ? strerrorname_np(errno) : "");
	return unused;
}

static void *sends_to_process(void *unused) {
	pthread_sigmask(SIG_BLOCK, &one_signal, NULL);
	sleep_ms(150);
	kill(getpid(), SIGUSR2);
	sleep_ms(150);
	send_all(both.client, "abcd", 4);
	return unused;
}

static void *only_sends(void *unused) {
	pthread_sigmask(SIG_BLOCK, &one_signal, NULL);
	sleep_ms(100);
	kill(getpid(), SIGUSR2);
	sleep_ms(100);
	send_all(both.client, "x", 1);
	return unused;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	sigemptyset(&one_signal);
	sigaddset(&one_signal, SIGUSR2);
	handle(SIGUSR2, false);
	prepare();
	pthread_t reader = start_thread(blocked_reader, NULL), killer = start_thread(sends_to_process, NULL);
	struct pollfd one = {.fd = listener, .events = POLLIN};
	int result = poll(&one, 1, ARRIVAL_MS), error = errno;
	say("the thread that does not: poll %d %s, handled %d", result, result < 0 ? strerrorname_np(error) : "", (int)handled);
	pthread_join(killer, NULL);
	pthread_join(reader, NULL);

	pthread_sigmask(SIG_BLOCK, &one_signal, NULL);
	handled = 0;
	killer = start_thread(only_sends, NULL);
	report("blocked everywhere: recv", recv(both.server, &byte, 1, 0));
	pthread_join(killer, NULL);
	sigset_t waits;
	sigpending(&waits);
	say("handled %d, still waits: %s", (int)handled, yes_no(sigismember(&waits, SIGUSR2)));
	pthread_sigmask(SIG_UNBLOCK, &one_signal, NULL);
	say("handled %d", (int)handled);

	signal(SIGUSR2, SIG_IGN);
	killer = start_thread(only_sends, NULL);
	pthread_sigmask(SIG_UNBLOCK, &one_signal, NULL);
	report("ignored: recv", recv(both.server, &byte, 1, 0));
	pthread_join(killer, NULL);
	signal(SIGCHLD, SIG_DFL);
	killer = start_thread(only_sends, NULL);
	kill(getpid(), SIGCHLD);
	kill(getpid(), SIGWINCH);
	report("ignored by default: poll", (one.fd = both.server, poll(&one, 1, ARRIVAL_MS)));
	pthread_join(killer, NULL);
	report("recv", recv(both.server, &byte, 1, 0));
	return 0;
}

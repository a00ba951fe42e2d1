/* signal-safety(7): a handler that sends, receives, polls and makes connections itself, while the call that it interrupts sleeps on another
 * connection: both go on. Case B39. */
#include "common.h"

static struct pair other, slept_on;
static int listener;
static volatile sig_atomic_t handled;
static volatile int results[5];

static void handler(int number) {
	(void)number;
	int error = errno;
	char byte = 'h';
	results[0] = (int)send(other.client, &byte, 1, MSG_NOSIGNAL);
	struct pollfd one = {.fd = other.server, .events = POLLIN};
	results[1] = poll(&one, 1, 5000);
	results[2] = (int)recv(other.server, &byte, 1, 0);
	int client = socket(local.storage.ss_family, SOCK_STREAM, 0);
	struct address name = {.length = sizeof name.storage};
	getsockname(listener, sockaddr_of(&name), &name.length);
	results[3] = connect(client, sockaddr_of(&name), name.length);
	int server = accept(listener, NULL, NULL);
	results[4] = server >= 0;
	close(server);
	close(client);
	handled++;
	errno = error;
}

static void *raises(void *context) {
	sleep_ms(100);
	pthread_kill(*(pthread_t *)context, SIGUSR1);
	sleep_ms(200);
	send_all(slept_on.client, "x", 1);
	return NULL;
}

static void during(const char *what, bool restart, bool polls) {
	struct sigaction action = {.sa_handler = handler, .sa_flags = restart ? SA_RESTART : 0};
	sigaction(SIGUSR1, &action, NULL);
	handled = 0;
	pthread_t me = pthread_self(), thread = start_thread(raises, &me);
	char byte;
	struct pollfd one = {.fd = slept_on.server, .events = POLLIN};
	long result = polls ? poll(&one, 1, ARRIVAL_MS) : recv(slept_on.server, &byte, 1, 0);
	int error = errno;
	say("%s: %ld %s, handled %d: send %d, poll %d, recv %d, connect %d, accept %d", what, result, result < 0 ? strerrorname_np(error) : "",
	    (int)handled, results[0], results[1], results[2], results[3], results[4]);
	pthread_join(thread, NULL);
	if (result < 0 || polls) report("  recv afterwards", recv(slept_on.server, &byte, 1, 0));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	listener = new_listener(0, 4);
	other = connect_pair(listener);
	slept_on = connect_pair(listener);
	during("recv, restart", true, false);
	during("recv, no restart", false, false);
	during("poll", true, true);
	return 0;
}

/* signal(7): which calls a handler lets go on and which it ends, where some handlers are set with SA_RESTART and others are not: it is the
 * one that has run that counts. Case B39. */
#include "signal_calls.h"

static void table(const struct call *calls, size_t count) {
	all_of(calls, count, SIGUSR1, "restart");
	all_of(calls, count, SIGUSR2, "no restart");
}

int main(int argc, char **argv) {
	begin(argc, argv);
	handle(SIGUSR1, true);
	handle(SIGUSR2, false);
	prepare();
	table(accepting, COUNT(accepting));
	table(reading, COUNT(reading));
	table(polling, COUNT(polling));
	fill(both.client);
	table(writing, COUNT(writing));
	return 0;
}

/* select(2): what each of the three sets says in every state of a socket, beside poll: its "Correspondence" in poll(2) and select(2). */
#include "states.h"

int main(int argc, char **argv) {
	begin(argc, argv);
	for (int state = 0; state < STATES; state++) {
		struct stand stand = stand_in(state);
		/* The kernel answers at once what it does not wait for. */
		fd_set sets[3];
		for (int i = 0; i < 3; i++) {
			FD_ZERO(&sets[i]);
			FD_SET(stand.fd, &sets[i]);
		}
		struct timeval now = {0, 0};
		int all = (int)must("select", select(stand.fd + 1, &sets[0], &sets[1], &sets[2], &now));
		printf("%s: %d, read %s, write %s, except %s", state_names[state], all, yes_no(FD_ISSET(stand.fd, &sets[0])),
		       yes_no(FD_ISSET(stand.fd, &sets[1])), yes_no(FD_ISSET(stand.fd, &sets[2])));
		for (int i = 0; i < 3; i++) {
			fd_set one;
			FD_ZERO(&one);
			FD_SET(stand.fd, &one);
			struct timespec none = {0, 0};
			printf(", alone %d", (int)must("pselect", pselect(stand.fd + 1, i == 0 ? &one : NULL, i == 1 ? &one : NULL, i == 2 ? &one : NULL, &none, NULL)));
		}
		/* That the own connect to nobody was a reset is an error to TCP. */
		say(", poll %s", event_names(events_now(stand.fd, ALL_EVENTS) & (state == DISSOLVED ? ~POLLERR : -1)));
		drop(stand);
	}
	return 0;
}

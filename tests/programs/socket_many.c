/* Many connections at once in one process, all alive together; each carries its own bytes; numbers are used again after
 * close (socket(2), lowest free number). ARGUMENT: how many (64). */
#include "common.h"

enum { BYTES = 3000 };

int main(int argc, char **argv) {
	begin(argc, argv);
	int count = (int)argument(1, 64);
	int listener = new_listener(0, 16);
	struct pair *all = calloc((size_t)count, sizeof *all);
	int first = dup(0);
	close(first);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < count; i++) all[i] = connect_pair(listener);
		say("numbers are dense: %s", yes_no(all[count - 1].server == first + 2 * count - 1));
		int equal = 0;
		char text[BYTES];
		for (int i = 0; i < count; i++) {
			fill_pattern(text, BYTES, 0, (unsigned)i);
			send_all(all[i].client, text, BYTES);
			send_all(all[i].server, text, BYTES / 2);
		}
		for (int i = count - 1; i >= 0; i--)
			equal += recv_pattern(all[i].server, BYTES, BYTES, (unsigned)i) == BYTES &&
				 recv_pattern(all[i].client, BYTES / 2, BYTES, (unsigned)i) == BYTES / 2;
		say("connections with the right bytes: %d of %d", equal, count);
		for (int i = 0; i < count; i++) close_pair(all[i]);
	}
	free(all);
	return 0;
}

/* Many connections open at once in one process, each with bytes of its own, then closed: what is left must be what was there before.
 * Cases B53, B54.
 *
 * soak_many ADDRESS COUNT: after a round of a few connections, and after each of two rounds of COUNT, prints what measure.h measures;
 * and in each of those two "open N" and "right N" */
#include "measure.h"

enum { FEW = 16, BYTES = 3000 };

static struct pair *all;

static void serve(int listener, int count) {
	for (int i = 0; i < count; i++) all[i] = connect_pair(listener);
	char text[BYTES];
	int right = 0;
	for (int i = 0; i < count; i++) {
		fill_pattern(text, BYTES, 0, (unsigned)i);
		send_all(all[i].client, text, BYTES);
		send_all(all[i].server, text, BYTES);
	}
	for (int i = 0; i < count; i++)
		right += recv_pattern(all[i].server, BYTES, BYTES, (unsigned)i) == BYTES &&
			 recv_pattern(all[i].client, BYTES, BYTES, (unsigned)i) == BYTES;
	say("open %d", count);
	say("right %d", right);
	for (int i = 0; i < count; i++) close_pair(all[i]);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int count = (int)argument(1, 1000), listener = new_listener(0, 64);
	all = calloc((size_t)(count > FEW ? count : FEW), sizeof *all);
	serve(listener, FEW);
	measure();
	for (int round = 0; round < 2; round++) {
		serve(listener, count);
		measure();
	}
	free(all);
	return 0;
}

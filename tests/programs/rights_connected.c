/* A connection that is to go to another process: TCP's goes. unix(7), SCM_RIGHTS.
 *
 * rights_connected ADDRESS: tries it in each way, and talks, over what came or else over what it has. */
#include "rights.h"

static void talk(struct pair both) {
	char bytes[8];
	send_all(both.client, "there", 5);
	size_t there = recv_all(both.server, bytes, 5);
	send_all(both.server, "back", 4);
	say("  there %zu, back %zu", there, recv_all(both.client, bytes, 4));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int ends[2];
	channel_pair(ends);
	for (enum way way = ONE; way < WAYS; way++) {
		struct pair both = new_pair();
		int all[2] = {ends[0], both.client};
		bool gone = report(way_names[way], send_rights(ends[0], way, all, 2)) == 1;
		if (gone) {
			say("  %zu came", receive_rights(ends[1], way, all, 2));
			close(all[0]);
			close(both.client);
			both.client = all[1];
		}
		talk(both);
		close_pair(both);
	}
	return 0;
}

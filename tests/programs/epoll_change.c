/* B02: what changes in a set while a thread waits in it counts; and what is no event for the program ends no wait. */
#include "epoll.h"

static int set;

static void *wait_in_set(void *text) {
	show(text, set, ARRIVAL_MS);
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	int listener = new_listener(0, 8);
	struct pair both = connect_pair(listener), other = connect_pair(listener);
	set = new_set();
	/* The set is empty, and then has only the kernel's, when the wait begins. */
	pthread_t thread = start_thread(wait_in_set, "put in while another waits");
	sleep_ms(50);
	send_all(both.client, "a", 1);
	wait_bytes(both.server, 1);
	add(set, both.server, EPOLLIN, 's');
	pthread_join(thread, NULL);
	char text[8];
	recv_all(both.server, text, 1);

	thread = start_thread(wait_in_set, "a second one put in");
	sleep_ms(50);
	send_all(other.client, "a", 1);
	wait_bytes(other.server, 1);
	add(set, other.server, EPOLLIN, 'o');
	pthread_join(thread, NULL);
	recv_all(other.server, text, 1);

	thread = start_thread(wait_in_set, "changed while another waits");
	sleep_ms(50);
	modify(set, other.server, EPOLLOUT, 'o');
	pthread_join(thread, NULL);
	modify(set, other.server, EPOLLIN, 'o');

	thread = start_thread(wait_in_set, "data after a while");
	sleep_ms(100);
	send_all(both.client, "b", 1);
	pthread_join(thread, NULL);
	recv_all(both.server, text, 1);

	thread = start_thread(wait_in_set, "taken out, another has data");
	sleep_ms(50);
	drop(set, both.server);
	send_all(both.client, "c", 1);
	wait_bytes(both.server, 1);
	sleep_ms(50);
	send_all(other.client, "d", 1);
	pthread_join(thread, NULL);

	/* The peer sends nothing, but reads: acknowledgements and credit are no events. */
	struct pair quiet = connect_pair(listener);
	int alone = new_set();
	static char block[1 << 20];
	set_nonblocking(quiet.server, true);
	ssize_t sent = must("send", send(quiet.server, block, sizeof block, 0));
	add(alone, quiet.server, EPOLLIN, 'q');
	int64_t start = now_us();
	for (ssize_t got = 0; got < sent;) got += must("recv", recv(quiet.client, block, 4096, 0));
	show("only credit comes", alone, 300);
	report_not_early("only credit comes", start, 300);
	close_pair(quiet);
	close_pair(both);
	close_pair(other);
	return 0;
}

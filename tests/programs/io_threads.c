/* Many threads on one socket: each send call's bytes stay together and in order as long as they are taken whole; several
 * readers share the stream, no byte twice or lost; a reader that waits is served whoever else waits. */
#include "common.h"

enum { WRITERS = 4, READERS = 3, RECORDS = 500, RECORD = 64 };

static struct pair both;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int seen[WRITERS][RECORDS], broken;

static void *writer(void *context) {
	int self = (int)(intptr_t)context;
	unsigned char record[RECORD];
	for (int i = 0; i < RECORDS; i++) {
		memset(record, 'a' + self, RECORD);
		record[0] = (unsigned char)self;
		record[1] = (unsigned char)(i >> 8);
		record[2] = (unsigned char)i;
		send_all(both.client, record, RECORD);
	}
	return NULL;
}

static void *reader(void *context) {
	(void)context;
	unsigned char record[RECORD];
	for (;;) {
		pthread_mutex_lock(&lock); /* a record is read by one thread */
		size_t got = recv_all(both.server, record, RECORD);
		pthread_mutex_unlock(&lock);
		if (got != RECORD) return NULL;
		int from = record[0], number = record[1] << 8 | record[2];
		bool good = from < WRITERS && number < RECORDS;
		for (int i = 3; good && i < RECORD; i++) good = record[i] == 'a' + from;
		if (good)
			__atomic_add_fetch(&seen[from][number], 1, __ATOMIC_RELAXED);
		else
			__atomic_add_fetch(&broken, 1, __ATOMIC_RELAXED);
	}
}

static void *count_bytes(void *context) {
	uint64_t *total = context;
	char text[100];
	ssize_t got;
	while ((got = recv(both.server, text, sizeof text, 0)) > 0) *total += (uint64_t)got;
	return NULL;
}

int main(int argc, char **argv) {
	begin(argc, argv);
	both = new_pair();
	pthread_t writers[WRITERS], readers[READERS];
	for (int i = 0; i < READERS; i++) readers[i] = start_thread(reader, NULL);
	for (int i = 0; i < WRITERS; i++) writers[i] = start_thread(writer, (void *)(intptr_t)i);
	for (int i = 0; i < WRITERS; i++) pthread_join(writers[i], NULL);
	shutdown(both.client, SHUT_WR);
	for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
	int once = 0;
	for (int i = 0; i < WRITERS; i++)
		for (int k = 0; k < RECORDS; k++) once += seen[i][k] == 1;
	say("records whole and once: %d of %d, broken %d", once, WRITERS * RECORDS, broken);
	close_pair(both);

	both = new_pair();
	uint64_t totals[READERS] = {0}, sum = 0;
	for (int i = 0; i < READERS; i++) readers[i] = start_thread(count_bytes, &totals[i]);
	send_pattern(both.client, 1 << 20, 3000, 1);
	shutdown(both.client, SHUT_WR);
	for (int i = 0; i < READERS; i++) {
		pthread_join(readers[i], NULL);
		sum += totals[i];
	}
	say("readers without a lock got %llu bytes together", (unsigned long long)sum);
	return 0;
}

/* What a process holds: for programs that show that it does not grow. */
#ifndef MEASURE_H
#define MEASURE_H
#include "common.h"

static inline long status_field(const char *name) {
	FILE *file = fopen("/proc/self/status", "r");
	char line[256];
	long value = -1;
	while (file && fgets(line, sizeof line, file))
		if (!strncmp(line, name, strlen(name))) value = strtol(line + strlen(name), NULL, 10);
	if (file) fclose(file);
	return value;
}

/* Mappings of this process (proc(5), /proc/pid/maps). */
static inline int maps(void) {
	FILE *file = fopen("/proc/self/maps", "r");
	int lines = 0;
	for (int byte; file && (byte = getc(file)) != EOF;) lines += byte == '\n';
	if (file) fclose(file);
	return lines;
}

static inline void measure(void) {
	sleep_ms(1500); /* closing goes on in the background */
	say("descriptors %d", open_descriptors());
	say("rss %ld", status_field("VmRSS:"));
	say("locked %ld", status_field("VmPin:"));
	say("maps %d", maps());
	say("threads %ld", status_field("Threads:"));
}

#endif

/* getsockopt(2), setsockopt(2): what each option of a stream socket is by default, takes and then is, in every state of a socket. A line
 * an option: its value and length, then for each value that is set what comes of it. Case B60. */
#include "option_table.h"

static void get(const struct option *option, int fd, bool show) {
	int value = -77;
	socklen_t length = sizeof value;
	if (getsockopt(fd, option->level, option->number, &value, &length) < 0)
		printf("%s", strerrorname_np(errno));
	else if (show)
		printf("%d/%u", value, length);
	else
		printf("*/%u", length);
}

static void go_through(const struct option *option, int fd) {
	printf("  %s: ", option->name);
	get(option, fd, !(option->flags & HIDDEN));
	for (int i = 0; i < (option->flags & READ_ONLY ? 1 : 4); i++) {
		int value = option->values[i];
		printf("; %d ", value);
		if (setsockopt(fd, option->level, option->number, &value, sizeof value) < 0) printf("%s ", strerrorname_np(errno));
		get(option, fd, !(option->flags & MOVES));
	}
	putchar('\n');
}

int main(int argc, char **argv) {
	begin(argc, argv);
	for (int state = 0; state < STATES; state++) {
		struct stand stand = stand_in(state);
		say("%s", state_names[state]);
		bool over = state == RESET || state == DISSOLVED;
		for (size_t i = 0; i < COUNT(int_options); i++)
			if (!over || !(int_options[i].flags & LIVE)) go_through(&int_options[i], stand.fd);
		drop(stand);
	}
	return 0;
}

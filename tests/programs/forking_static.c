// flags: -static
/* A program that no library can be loaded into: it copies descriptor 0 to descriptor 1 until the end. */
#include <unistd.h>

int main(void) {
	char buffer[10000];
	ssize_t got;
	while ((got = read(0, buffer, sizeof buffer)) > 0)
		for (ssize_t done = 0, now; done < got; done += now)
			if ((now = write(1, buffer + done, (size_t)(got - done))) <= 0) return 1;
	return got < 0;
}

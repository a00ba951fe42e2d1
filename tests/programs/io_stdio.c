/* C's streams on a connection (fdopen(3), fileno(3)), and stdin, stdout and stderr when it is duplicated to 0, 1 and 2, as servers under inetd
 * have it, and bash's `> /dev/tcp/…`: printf, puts, fgets, getchar, dprintf; back again to what was there before. */
#include "common.h"

static struct pair both;
static char text[200];
static int log_to; /* where the transcript goes meanwhile */

static void note(const char *format, ...) {
	va_list list;
	va_start(list, format);
	vdprintf(log_to, format, list);
	va_end(list);
}

static void expect(const char *what, const char *wanted) {
	memset(text, 0, sizeof text);
	ssize_t got = recv(both.server, text, strlen(wanted), MSG_WAITALL);
	note("%s: %s\n", what, got == (ssize_t)strlen(wanted) && !strcmp(text, wanted) ? "arrived" : text);
}

static void of_its_own(void) {
	note("-- fdopen\n");
	int fd = dup(both.client);
	FILE *stream = fdopen(fd, "r+");
	note("fileno: %s\n", yes_no(fileno(stream) == fd && fileno_unlocked(stream) == fd));
	fprintf(stream, "%s %d %.2f\n", "formatted", 42, 2.5);
	fputs("line\n", stream);
	note("nothing yet: %zd\n", recv(both.server, text, 1, MSG_DONTWAIT));
	note("fflush: %d\n", fflush(stream));
	expect("fprintf and fputs", "formatted 42 2.50\nline\n");
	send_all(both.server, "one\ntwo\n3 4 ", 12);
	fflush(stream);
	note("fgets: %s", fgets(text, sizeof text, stream));
	char word[20];
	int a, b;
	note("fscanf: %d", fscanf(stream, "%19s %d %d", word, &a, &b));
	note(" %s %d %d\n", word, a, b);
	struct pollfd one = {.fd = fileno(stream), .events = POLLOUT};
	note("poll of fileno: %d\n", poll(&one, 1, 0));
	note("fclose: %d\n", fclose(stream));
	note("closed: %s\n", fcntl(fd, F_GETFD) < 0 ? strerrorname_np(errno) : "no");
}

static void before_connect(void) {
	note("-- fdopen before connect\n");
	int listener = new_listener(0, 4);
	struct pair early = {.client = new_socket(0)};
	FILE *stream = fdopen(early.client, "r+");
	must("connect", connect_to(early.client, name_of(listener)));
	early.server = (int)must("accept", accept(listener, NULL, NULL));
	note("fprintf: %d\n", fprintf(stream, "early"));
	note("fflush: %d\n", fflush(stream));
	note("recv: %zd\n", recv(early.server, text, 5, MSG_WAITALL));
	note("fclose: %d\n", fclose(stream));
	note("the end: %zd\n", recv(early.server, text, 5, 0));
	close(early.server);
	close(listener);
}

static void by_number(void) {
	note("-- dprintf\n");
	note("%d\n", dprintf(both.client, "%s %d %c %.3f %ld %s|", "text", -7, 'x', 1.0 / 3, 1234567890123L, "more"));
	expect("dprintf", "text -7 x 0.333 1234567890123 more|");
	note("%d\n", dprintf(both.client, "%d%d%d%d%d%d%d%d %g %g %g %g %g %g %g %g %g %g", 1, 2, 3, 4, 5, 6, 7, 8, 1.5, 2.5, 3.5, 4.5, 5.5,
	                     6.5, 7.5, 8.5, 9.5, 10.5));
	expect("many arguments", "12345678 1.5 2.5 3.5 4.5 5.5 6.5 7.5 8.5 9.5 10.5");
	note("%d\n", dprintf(both.client, "plain"));
	expect("no arguments", "plain");
	log_to = both.client;
	note("%s %d", "vdprintf", 5);
	log_to = 100;
	expect("vdprintf", "vdprintf 5");
}

static void standard(void) {
	note("-- 0, 1 and 2\n");
	int saved[3] = {dup(0), dup(1), dup(2)};
	setvbuf(stdout, NULL, _IOFBF, BUFSIZ);
	printf("left over, ");
	for (int fd = 0; fd < 3; fd++) note("dup2: %d\n", dup2(both.client, fd));
	note("fileno: %d %d %d\n", fileno(stdin), fileno(stdout), fileno(stderr));
	printf("printf %d\n", 1);
	puts("puts");
	putchar('c');
	fprintf(stdout, "fprintf\n");
	note("fflush: %d\n", fflush(stdout));
	expect("stdout", "left over, printf 1\nputs\ncfprintf\n");
	fprintf(stderr, "unbuffered %s", "stderr");
	expect("stderr", "unbuffered stderr");
	errno = ENOENT;
	perror("perror");
	expect("perror", "perror: No such file or directory\n");
	send_all(both.server, "first\nsecond\nx12 ", 17);
	note("fgets: %s", fgets(text, sizeof text, stdin));
	size_t room = 0;
	char *line = NULL;
	note("getline: %zd", getline(&line, &room, stdin));
	note(" %s", line);
	note("getchar: %c\n", getchar());
	int number = 0;
	note("scanf: %d", scanf("%d", &number));
	note(" %d\n", number);
	note("write: %zd\n", write(1, "w", 1));
	expect("write", "w");
	printf("last");
	note("fflush of all: %d\n", fflush(NULL));
	expect("fflush of all", "last");
	for (int fd = 0; fd < 3; fd++) note("back: %d\n", dup2(saved[fd], fd));
	printf("to the log again\n");
	fflush(stdout);
	note("again: %d\n", dup2(both.client, 1));
	printf("a second time\n");
	fflush(stdout);
	expect("stdout", "a second time\n");
	dup2(saved[1], 1);
	for (int fd = 0; fd < 3; fd++) close(saved[fd]);
}

static void at_the_end(void) {
	note("-- the end\n");
	close(both.server);
	FILE *stream = fdopen(dup(both.client), "r");
	note("fgetc: %d", fgetc(stream));
	note(", eof: %s\n", yes_no(feof(stream)));
	fclose(stream);
	signal(SIGPIPE, SIG_IGN);
	note("dprintf: %d\n", dprintf(both.client, "lost"));
	wait_for(both.client, POLLHUP);
	errno = 0;
	note("dprintf again: %d ", dprintf(both.client, "lost"));
	note("%s\n", strerrorname_np(errno));
}

int main(int argc, char **argv) {
	begin(argc, argv);
	log_to = dup2(1, 100);
	both = new_pair();
	of_its_own();
	before_connect();
	by_number();
	standard();
	at_the_end();
	return 0;
}

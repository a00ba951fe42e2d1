// datagram_storm ADDRESS SECONDS SEED [UNORDERED]: processes that send one another datagrams of every size at random, wait for them in every way,
// are killed and begin anew. Each datagram has to be whole, once, and in its sender's order, unless UNORDERED is 1. Prints what is wrong, and
// whether any came.
#include "datagram.h"

#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { PROCESSES = 6, MOST = 9000, WINDOW = 4096 };

struct head {
	uint32_t magic, from, life, number, length;
};

static struct shared {
	struct address names[PROCESSES];
	uint32_t ready, lives[PROCESSES];
	uint64_t received, wrong;
} *shared;

static uint64_t state;
static volatile sig_atomic_t over;
static bool unordered;

static void end(int signal) {
	(void)signal;
	over = 1;
}

static uint32_t chance(uint32_t below) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % below;
}

static void wrong(const char *what, uint32_t me, struct head *head) {
	__atomic_add_fetch(&shared->wrong, 1, __ATOMIC_RELAXED);
	say("WRONG: %s: to %u from %u life %u number %u length %u", what, me, head->from, head->life, head->number, head->length);
}

/* Whether a number of a sender's life has been here, of the last ones. */
static bool is_new(struct head *head) {
	static struct {
		uint32_t life, newest;
		bool seen[WINDOW];
	} senders[PROCESSES], *of;
	of = &senders[head->from];
	if (head->life > of->life) memset(of, 0, sizeof *of), of->life = head->life;
	if (head->life < of->life) return true;
	if (head->number + WINDOW <= of->newest) return false;
	while (of->newest < head->number) of->seen[++of->newest % WINDOW] = false;
	bool *seen = &of->seen[head->number % WINDOW], before = *seen;
	return *seen = true, !before;
}

static void look_at(uint32_t me, unsigned char *bytes, ssize_t length, struct address *source) {
	static uint64_t last[PROCESSES];
	struct head head = {0};
	if (length < (ssize_t)sizeof head) return wrong("short", me, &head);
	memcpy(&head, bytes, sizeof head);
	if (head.magic != 0x57012345 || head.from >= PROCESSES || head.length != length) return wrong("no head", me, &head);
	if (!has_pattern(bytes + sizeof head, (size_t)length - sizeof head, head.number, head.from)) wrong("torn", me, &head);
	if (!same_address(*source, shared->names[head.from])) wrong("of another source", me, &head);
	uint64_t now = (uint64_t)head.life << 32 | head.number;
	if (unordered ? !is_new(&head) : now <= last[head.from]) wrong("twice, or late", me, &head);
	last[head.from] = now;
	__atomic_add_fetch(&shared->received, 1, __ATOMIC_RELAXED);
}

static void process(uint32_t me, int fd, uint32_t life) {
	static unsigned char bytes[MOST];
	struct timeval time = {0, 2000};
	uint32_t numbers[PROCESSES] = {0};
	struct sigaction action = {.sa_handler = end};
	must("sigaction", sigaction(SIGUSR1, &action, NULL));
	int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event event = {.events = EPOLLIN | (me % 2 ? EPOLLET : 0)};
	must("epoll_ctl", epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
	must("SO_RCVTIMEO", setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	while (!over) {
		for (uint32_t burst = chance(8); burst > 0; burst--) {
			uint32_t to = chance(PROCESSES), length = sizeof(struct head) + chance(chance(4) ? 200 : MOST - sizeof(struct head));
			struct head head = {0x57012345, me, life, ++numbers[to], length};
			memcpy(bytes, &head, sizeof head);
			fill_pattern(bytes + sizeof head, length - sizeof head, head.number, me);
			sendto(fd, bytes, length, 0, sockaddr_of(&shared->names[to]), shared->names[to].length);
		}
		struct pollfd one = {.fd = fd, .events = POLLIN};
		switch (chance(4)) {
		case 0: poll(&one, 1, 1); break;
		case 1: epoll_wait(set, &event, 1, 1); break;
		default: break;
		}
		for (uint32_t taken = 0; taken < 20; taken++) {
			struct address source = {.length = sizeof source.storage};
			if (chance(8) == 0) recv(fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
			ssize_t got = recvfrom(fd, bytes, sizeof bytes, chance(4) ? MSG_DONTWAIT : 0, sockaddr_of(&source), &source.length);
			if (got < 0) break;
			look_at(me, bytes, got, &source);
		}
	}
}

static pid_t start(uint32_t me) {
	uint32_t life = ++shared->lives[me];
	pid_t child = (pid_t)must("fork", fork());
	if (child) return child;
	state = state * 31 + me * 1000 + life;
	int fd = datagram_socket(0);
	/* The last one of this name may not be gone yet. */
	while (bind_to(fd, shared->names[me])) sleep_ms(1);
	process(me, fd, life);
	_exit(0);
}

int main(int argc, char **argv) {
	begin(argc, argv);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	state = (uint64_t)argument(2, 1);
	unordered = argument(3, 0);
	int64_t until = now_us() + argument(1, 2) * 1000000;
	pid_t children[PROCESSES];
	int places[PROCESSES];
	for (int i = 0; i < PROCESSES; i++) {
		places[i] = bound_socket(0);
		shared->names[i] = name_of(places[i]);
	}
	for (int i = 0; i < PROCESSES; i++) close(places[i]);
	for (uint32_t i = 0; i < PROCESSES; i++) children[i] = start(i);
	while (now_us() < until) {
		sleep_ms((int)chance(150));
		uint32_t who = chance(PROCESSES);
		must("kill", kill(children[who], SIGKILL));
		waitpid(children[who], NULL, 0);
		children[who] = start(who);
	}
	for (int i = 0; i < PROCESSES; i++) {
		/* These end in good order. */
		while (waitpid(children[i], NULL, WNOHANG) == 0) {
			kill(children[i], SIGUSR1);
			sleep_ms(10);
		}
	}
	say("wrong: %llu", (unsigned long long)shared->wrong);
	say("received any: %s", yes_no(shared->received > 100));
	return 0;
}

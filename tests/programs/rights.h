/* Descriptors over a Unix socket, in each of the ways that there are. */
#ifndef RIGHTS_H
#define RIGHTS_H
#include "common.h"
#include <sys/syscall.h>

enum way { ONE, MANY, RAW, RAW_MANY, WAYS };

static const char *const way_names[] = {"sendmsg, recvmsg", "sendmmsg, recvmmsg", "syscall", "syscall of many"};

struct parcel {
	struct iovec byte;
	char content;
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control;
	struct mmsghdr message;
};

static inline void wrap(struct parcel *parcel) {
	memset(parcel, 0, sizeof *parcel);
	parcel->byte = (struct iovec){.iov_base = &parcel->content, .iov_len = 1};
	parcel->message.msg_hdr = (struct msghdr){
	    .msg_iov = &parcel->byte, .msg_iovlen = 1, .msg_control = parcel->control.bytes, .msg_controllen = sizeof parcel->control};
}

/* The result of sending these descriptors: 1, or -1. */
static inline long send_rights(int channel, enum way way, const int *all, size_t count) {
	struct parcel parcel;
	wrap(&parcel);
	parcel.content = 'r';
	struct msghdr *header = &parcel.message.msg_hdr;
	header->msg_controllen = CMSG_SPACE(count * sizeof(int));
	struct cmsghdr *first = CMSG_FIRSTHDR(header);
	first->cmsg_level = SOL_SOCKET;
	first->cmsg_type = SCM_RIGHTS;
	first->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(first), all, count * sizeof(int));
	switch (way) {
	case ONE: return sendmsg(channel, header, 0);
	case MANY: return sendmmsg(channel, &parcel.message, 1, 0);
	case RAW: return syscall(SYS_sendmsg, channel, header, 0);
	default: return syscall(SYS_sendmmsg, channel, &parcel.message, 1, 0);
	}
}

/* How many came. */
static inline size_t receive_rights(int channel, enum way way, int *all, size_t room) {
	struct parcel parcel;
	wrap(&parcel);
	struct msghdr *header = &parcel.message.msg_hdr;
	long result;
	switch (way) {
	case ONE: result = recvmsg(channel, header, 0); break;
	case MANY: result = recvmmsg(channel, &parcel.message, 1, 0, NULL); break;
	case RAW: result = syscall(SYS_recvmsg, channel, header, 0); break;
	default: result = syscall(SYS_recvmmsg, channel, &parcel.message, 1, 0, NULL);
	}
	if (must("receive", result) == 0) return 0;
	struct cmsghdr *first = CMSG_FIRSTHDR(header);
	if (!first || first->cmsg_type != SCM_RIGHTS) return 0;
	size_t count = (first->cmsg_len - CMSG_LEN(0)) / sizeof(int);
	memcpy(all, CMSG_DATA(first), (count < room ? count : room) * sizeof(int));
	return count;
}

static inline void channel_pair(int ends[2]) { must("socketpair", socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends)); }

/* A system call that no library sees. */
static inline long unseen(long number, long a, long b, long c) {
#ifdef __x86_64__
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, result;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	result = x0;
#endif
	return result;
}

#endif

/*
 * rsockets: the socket API over RDMA.
 *
 * Each function behaves as the socket call without the r, and gives -1 and errno on failure.
 *
 * Generated from core/src/capi: do not edit (RSOCKET_WRITE_HEADER=1 cargo build writes it).
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */

#ifndef RSOCKET_H
#define RSOCKET_H


#include <sys/types.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/time.h>
#include <sys/select.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <errno.h>
#include <poll.h>
#if defined(__has_include)
#if __has_include(<infiniband/verbs.h>) && __has_include(<rdma/rdma_cma.h>)
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* fcntl(2). */
int rfcntl(int socket, int cmd, ... /* arg */);


/**
 * The level of the options that only rsockets have.
 */
#define SOL_RDMA 65536

/**
 * Send queue size: int.
 */
#define RDMA_SQSIZE 0

/**
 * Receive queue size: int.
 */
#define RDMA_RQSIZE 1

/**
 * Most bytes sent inline: int.
 */
#define RDMA_INLINE 2

/**
 * Entries of the remote iomapping table: int.
 */
#define RDMA_IOMAPSIZE 3

/**
 * The route: `struct ibv_path_data` array.
 */
#define RDMA_ROUTE 4

/**
 * socket(2) for rsockets: streams and datagrams of PF_INET and PF_INET6.
 */
int rsocket(int domain, int type, int protocol);

/**
 * bind(2).
 */
int rbind(int socket, const struct sockaddr *addr, socklen_t addrlen);

/**
 * listen(2).
 */
int rlisten(int socket, int backlog);

/**
 * accept(2).
 */
int raccept(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * connect(2).
 */
int rconnect(int socket, const struct sockaddr *addr, socklen_t addrlen);

/**
 * shutdown(2).
 */
int rshutdown(int socket, int how);

/**
 * getpeername(2).
 */
int rgetpeername(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * getsockname(2).
 */
int rgetsockname(int socket, struct sockaddr *addr, socklen_t *addrlen);

/**
 * recv(2).
 */
ssize_t rrecv(int socket, void *buf, size_t len, int flags);

/**
 * recvfrom(2).
 */
ssize_t rrecvfrom(int socket,
                  void *buf,
                  size_t len,
                  int flags,
                  struct sockaddr *src_addr,
                  socklen_t *addrlen);

/**
 * recvmsg(2).
 */
ssize_t rrecvmsg(int socket, struct msghdr *msg, int flags);

/**
 * send(2).
 */
ssize_t rsend(int socket, const void *buf, size_t len, int flags);

/**
 * sendto(2).
 */
ssize_t rsendto(int socket,
                const void *buf,
                size_t len,
                int flags,
                const struct sockaddr *dest_addr,
                socklen_t addrlen);

/**
 * sendmsg(2).
 */
ssize_t rsendmsg(int socket, const struct msghdr *msg, int flags);

/**
 * read(2).
 */
ssize_t rread(int socket, void *buf, size_t count);

/**
 * readv(2).
 */
ssize_t rreadv(int socket, const struct iovec *iov, int iovcnt);

/**
 * write(2).
 */
ssize_t rwrite(int socket, const void *buf, size_t count);

/**
 * writev(2).
 */
ssize_t rwritev(int socket, const struct iovec *iov, int iovcnt);

/**
 * Maps memory for riowrite at the other end (PROT_WRITE), or from there (PROT_NONE). Gives the offset (of -1: the address), or -1.
 */
off_t riomap(int socket,
             void *buf,
             size_t len,
             int prot,
             int flags,
             off_t offset);

/**
 * Ends a mapping.
 */
int riounmap(int socket, void *buf, size_t len);

/**
 * Writes to memory that the other end has mapped. Gives the number of bytes, 0 where nothing is mapped, or (size_t) -1.
 */
size_t riowrite(int socket,
                const void *buf,
                size_t count,
                off_t offset,
                int flags);

/**
 * poll(2), over rsockets and any other descriptors.
 */
int rpoll(struct pollfd *fds, nfds_t nfds, int timeout);

/**
 * select(2), over rsockets and any other descriptors.
 */
int rselect(int nfds,
            fd_set *readfds,
            fd_set *writefds,
            fd_set *exceptfds,
            struct timeval *timeout);

/**
 * epoll_create(2): a set of rsockets and any other descriptors. `size` is greater than zero, and not looked at otherwise.
 */
int repoll_create(int size);

/**
 * epoll_ctl(2) with a set of [`repoll_create`].
 */
int repoll_ctl(int repfd, int op, int fd, struct epoll_event *event);

/**
 * epoll_wait(2) in a set of [`repoll_create`].
 */
int repoll_wait(int repfd, struct epoll_event *events, int maxevents, int timeout);

/**
 * setsockopt(2).
 */
int rsetsockopt(int socket, int level, int optname, const void *optval, socklen_t optlen);

/**
 * getsockopt(2).
 */
int rgetsockopt(int socket, int level, int optname, void *optval, socklen_t *optlen);

/**
 * close(2).
 */
int rclose(int socket);

#ifdef __cplusplus
}
#endif

#endif /* RSOCKET_H */

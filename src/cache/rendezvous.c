#include "cache/rendezvous.h"

#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "cache/segment.h"

#define SOCKET_KIND (SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK)
#define BACKLOG 64

struct greeting {
    uint64_t magic, id;
};

union control { /* aligned as the kernel wants it */
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

void fb_rendezvous_name(char name[FB_NAME_TEXT], uint64_t hash)
{
    snprintf(name, FB_NAME_TEXT, FB_NAME_PREFIX "%u-%016llx", (unsigned)getuid(),
             (unsigned long long)hash);
}

/* An abstract address begins with a zero byte; its length counts. */
static socklen_t address_of(struct sockaddr_un *address, const char *name, int row)
{
    int length;

    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    if (row == FB_HOLDER)
        length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s", name);
    else
        length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s/%d", name, row);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int fb_rendezvous_bind(const char *name, int row)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name, row);
    int fd = socket(AF_UNIX, SOCKET_KIND, 0);

    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&address, length) || listen(fd, BACKLOG)) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool same_user(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);

    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) && size == sizeof(peer) &&
           peer.uid == getuid();
}

/* The one descriptor of a message; more than asked for cannot fit and are closed by the kernel. */
static int descriptor_in(struct msghdr *message)
{
    struct cmsghdr *part = CMSG_FIRSTHDR(message);
    int fd = -1;

    if (part && part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS &&
        part->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(part), sizeof(fd));
    return fd;
}

static int receive(int fd, int timeout_ms, uint64_t *id)
{
    struct pollfd poller = { .fd = fd, .events = POLLIN };
    struct greeting greeting;
    union control control;
    struct iovec part = { .iov_base = &greeting, .iov_len = sizeof(greeting) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    int memory;

    if (poll(&poller, 1, timeout_ms) <= 0)
        return -1;
    memset(&control, 0, sizeof(control));
    if (recvmsg(fd, &message, MSG_CMSG_CLOEXEC) != sizeof(greeting))
        return -1;
    memory = descriptor_in(&message);
    if (memory >= 0 && greeting.magic != FB_SEGMENT_MAGIC) {
        close(memory);
        memory = -1;
    }
    *id = greeting.id;
    return memory;
}

int fb_rendezvous_ask(const char *name, int row, int timeout_ms, uint64_t *id)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name, row);
    int fd = socket(AF_UNIX, SOCKET_KIND, 0), memory = -1;

    if (fd < 0)
        return -1;
    if (!connect(fd, (struct sockaddr *)&address, length) && same_user(fd))
        memory = receive(fd, timeout_ms, id);
    close(fd);
    return memory;
}

int fb_rendezvous_ask_all(const char *name, int timeout_ms, uint64_t *id)
{
    int memory = fb_rendezvous_ask(name, FB_HOLDER, timeout_ms, id);

    for (int row = 0; memory < 0 && row < (int)FB_ROWS_MAX; row++)
        memory = fb_rendezvous_ask(name, row, timeout_ms, id);
    return memory;
}

static void send_memory(int fd, int memory, uint64_t id)
{
    struct greeting greeting = { .magic = FB_SEGMENT_MAGIC, .id = id };
    union control control;
    struct iovec part = { .iov_base = &greeting, .iov_len = sizeof(greeting) };
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };

    memset(&control, 0, sizeof(control));
    control.header.cmsg_level = SOL_SOCKET;
    control.header.cmsg_type = SCM_RIGHTS;
    control.header.cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(&control.header), &memory, sizeof(memory));
    /* Whoever asked and left again is no concern of ours. */
    (void)!sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void fb_rendezvous_answer(int listener, int memory, uint64_t id)
{
    int fd;

    while (listener >= 0 && (fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (same_user(fd))
            send_memory(fd, memory, id);
        close(fd);
    }
}

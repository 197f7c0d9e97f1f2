/* What the cache asks of the system: how it writes fresh memory and gives it back, and whom it
 * trusts. The calls are the real ones, and are looked at on their way. */
#include "cache/test_help.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/sanitized.h"
#include "cache/rendezvous.h"

#define NOBODY 65534
#define UNIT ((uint64_t)1 << 20)
#define SEES_CALLS (!FB_SANITIZED) /* else they are the sanitizer's */

static _Atomic uint64_t written, punched, largest_punch;

#if SEES_CALLS
ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at);
int fallocate64(int fd, int mode, off64_t at, off64_t bytes);

ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    written += bytes;
    return syscall(SYS_pwrite64, fd, from, bytes, at);
}

int fallocate64(int fd, int mode, off64_t at, off64_t bytes)
{
    punched += (uint64_t)bytes;
    if ((uint64_t)bytes > largest_punch)
        largest_punch = (uint64_t)bytes;
    return (int)syscall(SYS_fallocate, fd, mode, at, bytes);
}
#endif

static struct fb_cache_options shared_of(struct fb_budget *budget, uint64_t units, uint64_t limit)
{
    struct fb_cache_options options = options_of(budget, FB_POLICY_LRU, units, UNIT, limit);

    options.share = FB_SHARE_JOB;
    options.identity = fresh_identity();
    return options;
}

static void fill(struct fb_cache *cache, const char *bytes, uint64_t from, uint64_t to)
{
    struct fb_cache_pin pin;

    for (uint64_t unit = from; unit < to; unit++) {
        assert_int_equal(fb_cache_find(cache, unit, UNIT, 0, true, &pin), FB_CACHE_FILL);
        assert_int_equal(fb_cache_write(cache, &pin, 0, bytes, UNIT, NULL), 0);
        fb_cache_publish(cache, &pin);
        fb_cache_done(cache, &pin);
    }
}

static void fresh_pages_are_written_and_used_ones_copied(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, 64, 17 * UNIT);
    struct fb_cache *cache = open_of(&options);
    struct fb_cache_report report;
    char *bytes = calloc(1, UNIT);

    (void)state;
    written = 0;
    fill(cache, bytes, 0, 64);
    fb_cache_read_report(cache, &report);
    assert_true(report.items >= 15 && report.evictions == 64 - report.items);
    if (SEES_CALLS) /* then pages came again, which are there already */
        assert_int_equal(written, report.items * UNIT);
    free(bytes);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

static void memory_goes_back_in_steps(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, 200, 202 * UNIT);
    struct fb_cache *cache = open_of(&options);
    char *bytes = calloc(1, UNIT);

    (void)state;
    fill(cache, bytes, 0, 200);
    punched = largest_punch = 0;
    assert_true(fb_cache_set_limit(cache, 10 * UNIT) <= 10 * UNIT);
    if (SEES_CALLS) {
        assert_true(punched >= 190 * UNIT && punched <= 200 * UNIT);
        assert_int_equal(largest_punch, 64 * UNIT);
    }
    free(bytes);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

/* ---- whom it trusts: another user of this machine is a process of its own ---- */

static int child_as(uid_t user, int (*work)(const char *name), const char *name)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        _exit(user != getuid() && setuid(user) ? 99 : work(name));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static socklen_t address_of(struct sockaddr_un *address, const char *name)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                       (size_t)snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "%s",
                                        name));
}

/* 1: memory came; 2: the other one hung up. Does not look who answers. */
static int ask_blindly(const char *name)
{
    struct sockaddr_un address;
    socklen_t length = address_of(&address, name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    char greeting[64];
    ssize_t got;

    if (fd < 0 || connect(fd, (struct sockaddr *)&address, length))
        return 3;
    got = recv(fd, greeting, sizeof(greeting), 0);
    close(fd);
    return got > 0 ? 1 : 2;
}

static void only_its_own_user_is_given_the_memory(void **state)
{
    struct fb_budget *budget = budget_of(MUCH);
    struct fb_cache_options options = shared_of(budget, 8, 4 * UNIT);
    struct fb_cache *cache = open_of(&options);
    char name[FB_NAME_TEXT];

    (void)state;
    fb_cache_name(cache, name);
    assert_int_equal(child_as(getuid(), ask_blindly, name), 1);
    if (getuid() == 0)
        assert_int_equal(child_as(NOBODY, ask_blindly, name), 2);
    fb_cache_close(cache);
    fb_budget_free(budget);
}

/* Holds the name, greets the first that comes with a memory of its own, whoever that is. */
static int greet_blindly(const char *name, int ready)
{
    struct { uint64_t magic, id; } greeting = { FB_SEGMENT_MAGIC, 5 };
    union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control;
    struct iovec part = { &greeting, sizeof(greeting) };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    int listener = fb_rendezvous_bind(name, FB_HOLDER), memory = memfd_create("liar", 0), fd = -1;

    memset(&control, 0, sizeof(control));
    control.header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS,
                                       .cmsg_len = CMSG_LEN(sizeof(int)) };
    memcpy(CMSG_DATA(&control.header), &memory, sizeof(memory));
    if (listener < 0 || fcntl(listener, F_SETFL, 0) || write(ready, "r", 1) != 1)
        return 1;
    fd = accept(listener, NULL, NULL);
    if (fd >= 0)
        (void)!sendmsg(fd, &message, MSG_NOSIGNAL);
    return fd < 0;
}

/* What one who asks gets from a liar of this user. */
static int ask_a_liar(uid_t user)
{
    char name[FB_NAME_TEXT], byte;
    uint64_t id = 0;
    int ready[2], memory, status;
    pid_t child;

    fb_rendezvous_name(name, fb_mix2(fb_now_ns(), user));
    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0)
        _exit(user != getuid() && setuid(user) ? 99 : greet_blindly(name, ready[1]));
    assert_int_equal(read(ready[0], &byte, 1), 1);
    memory = fb_rendezvous_ask(name, FB_HOLDER, 5000, &id);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    close(ready[0]);
    close(ready[1]);
    return memory;
}

static void only_its_own_user_is_believed(void **state)
{
    int memory = ask_a_liar(getuid());

    (void)state;
    assert_true(memory >= 0); /* it would be, were it not for the user */
    close(memory);
    if (getuid() == 0)
        assert_int_equal(ask_a_liar(NOBODY), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_pages_are_written_and_used_ones_copied),
        cmocka_unit_test(memory_goes_back_in_steps),
        cmocka_unit_test(only_its_own_user_is_given_the_memory),
        cmocka_unit_test(only_its_own_user_is_believed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

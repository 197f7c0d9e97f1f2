#include "cache/members.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/size.h"

#define STEP ((uint64_t)4096) /* what members give is kept in such units, 40 bits of them */
#define VALUE_MASK (((uint64_t)1 << 40) - 1)

/* life: generation << 32 | pid << 1 | taken */
bool fb_life_taken(uint64_t life)
{
    return life & 1;
}

uint32_t fb_life_generation(uint64_t life)
{
    return (uint32_t)(life >> 32) & FB_GENERATION_MASK;
}

int fb_life_pid(uint64_t life)
{
    return (int)((uint32_t)life >> 1);
}

unsigned fb_members_high(const struct fb_segment *segment)
{
    return (unsigned)fb_min(atomic_load(&segment->header->rows_high), segment->geometry.rows);
}

/* Field 22 of /proc/PID/stat: when it was started, in ticks since boot; 0 if it is not there. */
static uint64_t start_time(int pid)
{
    char path[64], text[1024], *at;
    ssize_t length;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    length = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    at = strrchr(text, ')'); /* the name may hold anything, blanks and brackets too */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

static void raise_high(struct fb_segment *segment, uint64_t rows)
{
    uint64_t now = atomic_load(&segment->header->rows_high);

    while (now < rows && !atomic_compare_exchange_weak(&segment->header->rows_high, &now, rows))
        continue;
}

/* A value with its generation: what an earlier member of the row wrote does not count. */
static uint64_t tag(uint32_t generation, uint64_t value)
{
    return (uint64_t)generation << 40 | fb_min(value, VALUE_MASK);
}

static bool untag(uint64_t word, uint64_t life, uint64_t *value)
{
    *value = word & VALUE_MASK;
    return fb_life_taken(life) && word >> 40 == fb_life_generation(life);
}

static void fill_in(struct fb_segment *segment, unsigned row, uint32_t generation, uint64_t job,
                    struct fb_member *member)
{
    *member = (struct fb_member){
        .row = row,
        .generation = generation,
        .token = fb_member_token(row, generation),
        .hold = 0x80000000u | row << 23 | generation,
    };
    /* What an earlier member left here pins nothing any more. */
    for (uint32_t i = 0; i < segment->geometry.pins; i++)
        atomic_store(&segment->pins[(uint64_t)row * segment->geometry.pins + i], 0);
    /* Nor is it on the way any more. */
    atomic_store(&segment->rows[row].counts[FB_COUNT_ENDED],
                 atomic_load(&segment->rows[row].counts[FB_COUNT_BEGUN]));
    atomic_store(&segment->rows[row].born, tag(generation, start_time((int)getpid())));
    atomic_store(&segment->rows[row].job, job);
}

bool fb_member_join(struct fb_segment *segment, uint64_t job, struct fb_member *member)
{
    for (unsigned row = 0; row < segment->geometry.rows; row++) {
        uint64_t life = atomic_load(&segment->rows[row].life);
        uint32_t generation = (fb_life_generation(life) + 1) & FB_GENERATION_MASK;
        uint64_t mine = (uint64_t)generation << 32 | (uint64_t)(uint32_t)getpid() << 1 | 1;

        if (fb_life_taken(life))
            continue;
        raise_high(segment, row + 1);
        if (atomic_compare_exchange_strong(&segment->rows[row].life, &life, mine)) {
            fill_in(segment, row, generation, job, member);
            return true;
        }
    }
    return false;
}

void fb_member_leave(struct fb_segment *segment, const struct fb_member *member)
{
    uint64_t life = atomic_load(&segment->rows[member->row].life);

    if (fb_life_taken(life) && fb_life_generation(life) == member->generation)
        atomic_compare_exchange_strong(&segment->rows[member->row].life, &life,
                                       life & ~(uint64_t)UINT32_MAX);
}

unsigned fb_members_count(const struct fb_segment *segment)
{
    unsigned count = 0, high = fb_members_high(segment);

    for (unsigned row = 0; row < high; row++)
        count += fb_life_taken(atomic_load(&segment->rows[row].life));
    return count;
}

bool fb_members_several_jobs(const struct fb_segment *segment)
{
    unsigned high = fb_members_high(segment);
    uint64_t first = 0;

    for (unsigned row = 0; row < high; row++) {
        uint64_t job = atomic_load(&segment->rows[row].job);

        if (!fb_life_taken(atomic_load(&segment->rows[row].life)) || !job)
            continue;
        if (first && job != first)
            return true;
        first = job;
    }
    return false;
}

void fb_member_give(struct fb_segment *segment, const struct fb_member *member, uint64_t bytes)
{
    atomic_store(&segment->rows[member->row].given, tag(member->generation, bytes / STEP));
}

void fb_member_share(struct fb_segment *segment, const struct fb_member *member, uint64_t bytes)
{
    atomic_store(&segment->rows[member->row].share, tag(member->generation, bytes / STEP));
}

static uint64_t sum_up(const struct fb_segment *segment, bool share)
{
    unsigned high = fb_members_high(segment);
    uint64_t sum = 0, steps;

    for (unsigned row = 0; row < high; row++) {
        uint64_t life = atomic_load(&segment->rows[row].life);
        uint64_t word = atomic_load(share ? &segment->rows[row].share : &segment->rows[row].given);

        if (untag(word, life, &steps))
            sum += steps * STEP;
    }
    return sum;
}

uint64_t fb_members_given(const struct fb_segment *segment)
{
    return sum_up(segment, false);
}

uint64_t fb_members_share(const struct fb_segment *segment)
{
    return sum_up(segment, true);
}

uint64_t fb_members_total(const struct fb_segment *segment, unsigned what)
{
    unsigned high = fb_members_high(segment);
    uint64_t sum = 0;

    for (unsigned row = 0; row < high; row++)
        sum += atomic_load_explicit(&segment->rows[row].counts[what], memory_order_relaxed);
    return sum;
}

bool fb_members_rest(const struct fb_segment *segment, uint64_t *begun)
{
    unsigned high = fb_members_high(segment);
    bool rest = true;

    *begun = 0;
    for (unsigned row = 0; row < high; row++) {
        const struct fb_row *one = &segment->rows[row];
        uint64_t ended = atomic_load(&one->counts[FB_COUNT_ENDED]);
        uint64_t now = atomic_load(&one->counts[FB_COUNT_BEGUN]); /* read last: equal is at rest */

        rest = rest && (now == ended || !fb_life_taken(atomic_load(&one->life)));
        *begun += now;
    }
    return rest;
}

bool fb_pin_set(struct fb_segment *segment, const struct fb_member *member, uint64_t unit,
                uint64_t hint, uint64_t *slot)
{
    uint32_t pins = segment->geometry.pins;
    uint64_t first = (uint64_t)member->row * pins, start = hint % pins;
    uint64_t word = (uint64_t)member->generation << 32 | (unit + 1);

    for (uint32_t i = 0; i < pins; i++) {
        uint64_t at = first + (start + i < pins ? start + i : start + i - pins), empty = 0;

        if (atomic_load_explicit(&segment->pins[at], memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong(&segment->pins[at], &empty, word)) {
            *slot = at;
            return true;
        }
    }
    return false;
}

void fb_pin_clear(struct fb_segment *segment, const struct fb_member *member, uint64_t slot)
{
    uint32_t pins = segment->geometry.pins;

    if (slot / pins == member->row)
        atomic_store_explicit(&segment->pins[slot], 0, memory_order_release);
}

bool fb_pin_any(const struct fb_segment *segment, uint64_t unit)
{
    uint64_t slots = (uint64_t)fb_members_high(segment) * segment->geometry.pins;

    for (uint64_t slot = 0; slot < slots; slot++)
        if ((uint32_t)atomic_load(&segment->pins[slot]) == (uint32_t)(unit + 1))
            return true;
    return false;
}

void fb_watch_init(struct fb_watch *watch)
{
    for (unsigned row = 0; row < FB_ROWS_MAX; row++) {
        watch->seen[row].life = 0;
        watch->seen[row].fd = -1;
    }
}

void fb_watch_release(struct fb_watch *watch)
{
    for (unsigned row = 0; row < FB_ROWS_MAX; row++)
        if (watch->seen[row].fd >= 0)
            close(watch->seen[row].fd);
    fb_watch_init(watch);
}

static int pidfd_open_of(int pid)
{
    return (int)syscall(SYS_pidfd_open, pid, 0);
}

bool fb_watch_possible(void)
{
    int fd = pidfd_open_of((int)getpid());

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool ended(int pidfd)
{
    struct pollfd poller = { .fd = pidfd, .events = POLLIN };

    return poll(&poller, 1, 0) > 0;
}

/* The fd is opened first and the start time read afterwards: if they agree, the fd is the
 * member's and stays so, whatever becomes of the number. */
static int open_watch(const struct fb_segment *segment, unsigned row, uint64_t life, bool *dead)
{
    int fd = pidfd_open_of(fb_life_pid(life));
    uint64_t born;
    bool known = untag(atomic_load(&segment->rows[row].born), life, &born) && born;

    if (fd < 0) {
        *dead = errno == ESRCH || errno == EINVAL; /* EINVAL: no process, or garbage */
        return -1;
    }
    if (ended(fd) || (known && start_time(fb_life_pid(life)) != born)) {
        *dead = true;
        close(fd);
        return -1;
    }
    return fd;
}

int fb_watch_row(struct fb_watch *watch, const struct fb_segment *segment, unsigned row, bool *dead)
{
    uint64_t life = atomic_load(&segment->rows[row].life);

    *dead = false;
    if (watch->seen[row].life != life && watch->seen[row].fd >= 0) {
        close(watch->seen[row].fd);
        watch->seen[row].fd = -1;
    }
    watch->seen[row].life = life;
    if (!fb_life_taken(life))
        return -1;
    if (watch->seen[row].fd < 0) {
        watch->seen[row].fd = open_watch(segment, row, life, dead);
        return watch->seen[row].fd;
    }
    if (ended(watch->seen[row].fd)) {
        *dead = true;
        close(watch->seen[row].fd);
        watch->seen[row].fd = -1;
        return -1;
    }
    return watch->seen[row].fd;
}

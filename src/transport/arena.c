#include "transport/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/size.h"

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define MAGIC UINT64_C(0x666f7265626179a1)
#define WINDOW 64       /* releases after which the mark of recent use is taken anew */
#define SPREAD 2        /* the memfd is so many times the limit: room for ranges of unlike sizes */
#define GRAINS_MAX (UINT64_C(1) << 20) /* of one range: 20 bits of its word */
#define LIMIT_MAX (UINT64_C(1) << 42)

/* A word: owner's pid 22 bits, ticket 20, grains 20, sent, inside (not a range's first). */
#define INSIDE UINT64_C(1)
#define SENT UINT64_C(2)
#define LENGTH_SHIFT 2
#define TICKET_SHIFT 22
#define OWNER_SHIFT 42
#define TICKET_MASK ((UINT64_C(1) << 20) - 1)

struct head {
    uint64_t magic;
    uint64_t grains;        /* how many words follow */
    uint64_t first;         /* where grain 0 lies in the memfd */
    _Atomic uint64_t limit; /* in grains */
    _Atomic uint64_t top;   /* no grain from here on is taken */
    _Atomic uint64_t ticket;
    _Atomic uint64_t refused;
};

struct fb_arena {
    atomic_uint references;
    int fd;
    pid_t opener;         /* 0: attached */
    uint64_t mapped;
    struct head *head;
    _Atomic uint64_t *words;
    unsigned char *data;
    struct fb_budget *budget;
    uint64_t reserved;    /* in the budget */
    atomic_uint releases;
    _Atomic uint64_t mark, next_mark; /* grains below were in use in this or the last window */
    _Atomic uint64_t touched;         /* grains from here on have no pages */
};

static pid_t owner_of(uint64_t word)
{
    return (pid_t)(word >> OWNER_SHIFT);
}

static uint64_t length_of(uint64_t word)
{
    return word >> LENGTH_SHIFT & (GRAINS_MAX - 1);
}

static uint64_t grains_of(uint64_t bytes)
{
    return fb_round_up(bytes, FB_ARENA_GRAIN) / FB_ARENA_GRAIN;
}

static void raise_to(_Atomic uint64_t *number, uint64_t value)
{
    uint64_t now = atomic_load(number);

    while (now < value && !atomic_compare_exchange_weak(number, &now, value))
        ;
}

/* ---- Open and close ---- */

static int map(struct fb_arena *arena, forebay_error *error)
{
    void *base = mmap(NULL, arena->mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                      arena->fd, 0);

    if (base == MAP_FAILED)
        return fb_fail_errno(error, FOREBAY_NO_MEMORY,
                             "transport: cannot map %llu bytes of address space for batches",
                             (unsigned long long)arena->mapped);
    arena->head = base;
    arena->words = (_Atomic uint64_t *)(arena->head + 1);
    return FOREBAY_OK;
}

static struct fb_arena *arena_new(void)
{
    struct fb_arena *arena = calloc(1, sizeof(*arena));

    if (arena) {
        atomic_init(&arena->references, 1);
        arena->fd = -1;
    }
    return arena;
}

static int format(struct fb_arena *arena, uint64_t limit, forebay_error *error)
{
    uint64_t grains = SPREAD * grains_of(fb_max(limit, FB_ARENA_GRAIN));
    uint64_t first = fb_round_up(sizeof(struct head) + grains * sizeof(uint64_t), FB_ARENA_GRAIN);
    int status;

    arena->mapped = first + grains * FB_ARENA_GRAIN;
    arena->fd = memfd_create("forebay-batches", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0 || ftruncate(arena->fd, (off_t)arena->mapped) ||
        fcntl(arena->fd, F_ADD_SEALS, SEALS))
        return fb_fail_errno(error, FOREBAY_NO_MEMORY,
                             "transport: cannot make shared memory for batches");
    status = map(arena, error);
    if (status)
        return status;
    arena->head->magic = MAGIC;
    arena->head->grains = grains;
    arena->head->first = first;
    atomic_store(&arena->head->limit, limit / FB_ARENA_GRAIN);
    arena->data = (unsigned char *)arena->head + first;
    return FOREBAY_OK;
}

int fb_arena_open(struct fb_arena **out, uint64_t limit, struct fb_budget *budget,
                  forebay_error *error)
{
    struct fb_arena *arena;
    int status;

    if (limit > LIMIT_MAX)
        limit = LIMIT_MAX;
    limit -= limit % FB_ARENA_GRAIN;
    arena = arena_new();
    if (!arena)
        return fb_fail(error, FOREBAY_NO_MEMORY, "transport: no memory to open it");
    if (budget) {
        status = fb_budget_reserve(budget, FB_STAGE_SLOTS, limit, "batches in flight", error);
        if (status)
            goto fail;
        arena->budget = fb_budget_share(budget);
        arena->reserved = limit;
    }
    status = format(arena, limit, error);
    if (status)
        goto fail;
    arena->opener = getpid();
    *out = arena;
    return FOREBAY_OK;
fail:
    fb_arena_close(arena);
    return status;
}

/* The sizes in the head come from our own process, but the descriptor may be any file. */
static bool head_is_sound(const struct fb_arena *arena)
{
    const struct head *head = arena->head;
    uint64_t end;

    return head->magic == MAGIC && fb_mul(head->grains, FB_ARENA_GRAIN, &end) &&
           fb_add(end, head->first, &end) && end == arena->mapped &&
           head->first / sizeof(uint64_t) >= head->grains + sizeof(*head) / sizeof(uint64_t);
}

int fb_arena_attach(struct fb_arena **out, int fd, forebay_error *error)
{
    struct fb_arena *arena = arena_new();
    struct stat about;
    int status;

    if (!arena)
        return fb_fail(error, FOREBAY_NO_MEMORY, "transport: no memory to attach");
    arena->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    if (arena->fd < 0 || fstat(arena->fd, &about)) {
        status = fb_fail_errno(error, FOREBAY_IO, "transport: descriptor %d is not open", fd);
        goto fail;
    }
    arena->mapped = (uint64_t)about.st_size;
    if (arena->mapped < sizeof(struct head)) {
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "transport: descriptor %d is not forebay's memory for batches", fd);
        goto fail;
    }
    status = map(arena, error);
    if (status)
        goto fail;
    if (!head_is_sound(arena)) {
        status = fb_fail(error, FOREBAY_BAD_DATA,
                         "transport: descriptor %d is not forebay's memory for batches", fd);
        goto fail;
    }
    arena->data = (unsigned char *)arena->head + arena->head->first;
    *out = arena;
    return FOREBAY_OK;
fail:
    fb_arena_close(arena);
    return status;
}

int fb_arena_fd(const struct fb_arena *arena)
{
    return arena->fd;
}

struct fb_arena *fb_arena_share(struct fb_arena *arena)
{
    atomic_fetch_add(&arena->references, 1);
    return arena;
}

void fb_arena_close(struct fb_arena *arena)
{
    if (!arena || atomic_fetch_sub(&arena->references, 1) != 1)
        return;
    if (arena->budget) {
        fb_budget_refund(arena->budget, FB_STAGE_SLOTS, arena->reserved);
        fb_budget_free(arena->budget);
    }
    if (arena->head)
        munmap(arena->head, arena->mapped);
    if (arena->fd >= 0)
        close(arena->fd);
    free(arena);
}

/* ---- Take ---- */

/* Grains in use; stops early above `enough`. */
static uint64_t used_grains(const struct fb_arena *arena, uint64_t enough)
{
    uint64_t top = atomic_load(&arena->head->top), used = 0;

    for (uint64_t at = 0; at < top && used <= enough;) {
        uint64_t word = atomic_load_explicit(&arena->words[at], memory_order_relaxed);
        uint64_t step = word && !(word & INSIDE) ? fb_max(length_of(word), 1) : 1;

        used += word ? step : 0;
        at += step;
    }
    return used;
}

static void clear_words(struct fb_arena *arena, uint64_t first, uint64_t count)
{
    while (count-- > 0)
        atomic_store_explicit(&arena->words[first + count], 0, memory_order_release);
}

/* Claim `count` grains from `first` on, of which the caller saw none taken. Returns how many it
 * got; fewer than all are given back at once. */
static uint64_t claim(struct fb_arena *arena, uint64_t first, uint64_t count, uint64_t word)
{
    uint64_t got = 0;

    raise_to(&arena->head->top, first + count);
    for (; got < count; got++) {
        uint64_t none = 0;

        if (!atomic_compare_exchange_strong(&arena->words[first + got], &none,
                                            got ? word | INSIDE : word))
            break;
    }
    if (got < count)
        clear_words(arena, first, got);
    return got;
}

/* The first grain of `count` free ones from `from` on; `grains` if there are none. */
static uint64_t find_free(const struct fb_arena *arena, uint64_t from, uint64_t count)
{
    uint64_t grains = arena->head->grains, run = 0;

    for (uint64_t at = from; at < grains;) {
        uint64_t word = atomic_load_explicit(&arena->words[at], memory_order_relaxed);

        if (!word) {
            at++;
            if (++run == count)
                return at - count;
            continue;
        }
        run = 0;
        at += word & INSIDE ? 1 : fb_max(length_of(word), 1);
    }
    return grains;
}

static bool refuse(struct fb_arena *arena)
{
    atomic_fetch_add(&arena->head->refused, 1);
    return false;
}

bool fb_arena_take(struct fb_arena *arena, uint64_t bytes, struct fb_range *range)
{
    uint64_t count = grains_of(fb_max(bytes, 1)), limit = atomic_load(&arena->head->limit);
    uint64_t ticket = atomic_fetch_add(&arena->head->ticket, 1) & TICKET_MASK;
    uint64_t word = (uint64_t)getpid() << OWNER_SHIFT | ticket << TICKET_SHIFT |
                    count << LENGTH_SHIFT;
    uint64_t at = 0;

    if (count >= GRAINS_MAX || count > limit || used_grains(arena, limit - count) > limit - count)
        return refuse(arena);
    for (;;) {
        at = find_free(arena, at, count);
        if (at >= arena->head->grains)
            return refuse(arena);
        if (claim(arena, at, count, word) == count)
            break;
    }
    /* Another process may have claimed at the same moment; both see the sum of both now. */
    if (used_grains(arena, limit) > limit) {
        clear_words(arena, at, count);
        return refuse(arena);
    }
    raise_to(&arena->touched, at + count);
    *range = (struct fb_range){ arena->data + at * FB_ARENA_GRAIN, bytes, at * FB_ARENA_GRAIN,
                                word };
    return true;
}

/* ---- From one process to another ---- */

uint64_t fb_arena_send(struct fb_arena *arena, const struct fb_range *range)
{
    uint64_t word = range->word;

    atomic_compare_exchange_strong(&arena->words[range->offset / FB_ARENA_GRAIN], &word,
                                   range->word | SENT);
    return range->word | SENT;
}

int fb_arena_adopt(struct fb_arena *arena, uint64_t offset, uint64_t bytes, uint64_t ticket,
                   struct fb_range *range, forebay_error *error)
{
    uint64_t at = offset / FB_ARENA_GRAIN, count = length_of(ticket), expected = ticket;
    uint64_t word = (ticket & ~SENT & ((UINT64_C(1) << OWNER_SHIFT) - 1)) |
                    (uint64_t)getpid() << OWNER_SHIFT;

    if (offset % FB_ARENA_GRAIN || at >= arena->head->grains || !(ticket & SENT) ||
        count != grains_of(fb_max(bytes, 1)) || count > arena->head->grains - at ||
        !atomic_compare_exchange_strong(&arena->words[at], &expected, word))
        return fb_fail(error, FOREBAY_BAD_DATA,
                       "transport: the batch at byte %llu is not there any more; its worker "
                       "(pid %d) died and its memory was given back",
                       (unsigned long long)offset, (int)owner_of(ticket));
    raise_to(&arena->touched, at + count);
    *range = (struct fb_range){ arena->data + offset, bytes, offset, word };
    return FOREBAY_OK;
}

/* ---- Give back ---- */

static void punch(struct fb_arena *arena, uint64_t first, uint64_t count)
{
    if (count > 0)
        fallocate(arena->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)(arena->head->first + first * FB_ARENA_GRAIN),
                  (off_t)(count * FB_ARENA_GRAIN));
}

/* Punch the free grains from `from` on. Each is claimed meanwhile, so no process writes there. */
static void punch_free(struct fb_arena *arena, uint64_t from)
{
    uint64_t to = fb_min(atomic_load(&arena->touched), arena->head->grains), last = from;
    uint64_t word = (uint64_t)getpid() << OWNER_SHIFT | UINT64_C(1) << LENGTH_SHIFT | INSIDE;

    for (uint64_t at = from; at < to;) {
        uint64_t run = 0;

        while (at + run < to) {
            uint64_t none = 0;

            if (!atomic_compare_exchange_strong(&arena->words[at + run], &none, word))
                break;
            run++;
        }
        punch(arena, at, run);
        clear_words(arena, at, run);
        last = run ? last : at + 1;
        at += run + 1;
    }
    atomic_store(&arena->touched, fb_max(last, from));
}

/* Every WINDOW releases: give back what lies above the use of the last two windows. */
static void turn_window(struct fb_arena *arena)
{
    uint64_t mark = fb_max(atomic_load(&arena->mark), atomic_load(&arena->next_mark));

    fb_arena_reclaim(arena, 0);
    atomic_store(&arena->mark, atomic_exchange(&arena->next_mark, 0));
    if (atomic_load(&arena->touched) > mark)
        punch_free(arena, mark);
}

void fb_arena_release(struct fb_arena *arena, const struct fb_range *range)
{
    uint64_t at = range->offset / FB_ARENA_GRAIN, word = range->word, count = length_of(word);

    /* A claim of our own, under which the words can be cleared from the last to the first. */
    if (owner_of(word) != getpid() ||
        !atomic_compare_exchange_strong(&arena->words[at], &word, range->word | INSIDE))
        return;
    raise_to(&arena->next_mark, at + count);
    clear_words(arena, at, count);
    if (arena->opener == getpid() && atomic_fetch_add(&arena->releases, 1) % WINDOW == WINDOW - 1)
        turn_window(arena);
}

static bool is_dead(pid_t pid)
{
    return kill(pid, 0) && errno == ESRCH;
}

uint64_t fb_arena_reclaim(struct fb_arena *arena, pid_t pid)
{
    uint64_t top = fb_min(atomic_load(&arena->head->top), arena->head->grains), freed = 0;
    pid_t self = getpid(), last = self;
    bool dead = false;

    for (uint64_t at = 0; at < top; at++) {
        uint64_t word = atomic_load(&arena->words[at]);
        pid_t owner = owner_of(word);

        if (!word || owner == self)
            continue;
        if (owner != last) {
            last = owner;
            dead = pid ? owner == pid : is_dead(owner);
        }
        if (dead && atomic_compare_exchange_strong(&arena->words[at], &word, 0))
            freed++;
    }
    return freed * FB_ARENA_GRAIN;
}

int fb_arena_set_limit(struct fb_arena *arena, uint64_t limit, forebay_error *error)
{
    uint64_t old = atomic_load(&arena->head->limit), grains;

    grains = fb_min(limit / FB_ARENA_GRAIN, arena->head->grains);
    if (arena->budget && grains > old) {
        int status = fb_budget_reserve(arena->budget, FB_STAGE_SLOTS,
                                       (grains - old) * FB_ARENA_GRAIN, "batches in flight",
                                       error);
        if (status)
            return status;
    }
    atomic_store(&arena->head->limit, grains);
    if (arena->budget && grains < old)
        fb_budget_refund(arena->budget, FB_STAGE_SLOTS, (old - grains) * FB_ARENA_GRAIN);
    arena->reserved = grains * FB_ARENA_GRAIN;
    if (grains < old)
        punch_free(arena, 0);
    return FOREBAY_OK;
}

void fb_arena_trim(struct fb_arena *arena)
{
    fb_arena_reclaim(arena, 0);
    punch_free(arena, 0);
}

void fb_arena_read(struct fb_arena *arena, struct fb_arena_stats *stats)
{
    uint64_t top = atomic_load(&arena->head->top);
    struct stat about;
    pid_t self = getpid();

    *stats = (struct fb_arena_stats){ .limit_bytes = atomic_load(&arena->head->limit) *
                                                     FB_ARENA_GRAIN,
                                      .used_bytes = used_grains(arena, UINT64_MAX) *
                                                    FB_ARENA_GRAIN,
                                      .refused = atomic_load(&arena->head->refused) };
    for (uint64_t at = 0; at < top; at++) {
        uint64_t word = atomic_load(&arena->words[at]);

        if (word && !(word & (INSIDE | SENT)) && owner_of(word) == self) {
            stats->own_ranges++;
            stats->own_bytes += length_of(word) * FB_ARENA_GRAIN;
        }
    }
    if (!fstat(arena->fd, &about))
        stats->resident_bytes = (uint64_t)about.st_blocks * 512;
}

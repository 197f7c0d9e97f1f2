#include "cache/entries.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The half of the state that holds phase, waited and row: what a futex can look at. */
static uint32_t *low_half(struct fb_segment *segment, uint64_t unit)
{
    void *state = segment->base + segment->layout.entries_at + unit * sizeof(struct fb_entry) +
                  offsetof(struct fb_entry, state);

    return (uint32_t *)state + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
}

bool fb_entry_move(struct fb_segment *segment, uint64_t unit, uint64_t from, uint64_t to)
{
    uint64_t expected = from;

    if (!atomic_compare_exchange_strong(&segment->entries[unit].state, &expected, to))
        return false;
    if (from & FB_WAITED)
        syscall(SYS_futex, low_half(segment, unit), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return true;
}

bool fb_entry_settle(struct fb_segment *segment, uint64_t unit, uint64_t member, uint64_t to)
{
    uint64_t state;

    do {
        state = fb_entry_state(segment, unit);
        if (fb_state_phase(state) != FB_FILLING || fb_state_member(state) != member)
            return false;
    } while (!fb_entry_move(segment, unit, state, to));
    return true;
}

void fb_entry_wait(struct fb_segment *segment, uint64_t unit, uint64_t state, uint64_t ns)
{
    struct timespec timeout = { .tv_sec = (time_t)(ns / 1000000000u),
                                .tv_nsec = (long)(ns % 1000000000u) };

    if (!(state & FB_WAITED)) {
        if (!fb_entry_move(segment, unit, state, state | FB_WAITED))
            return;
        state |= FB_WAITED;
    }
    syscall(SYS_futex, low_half(segment, unit), FUTEX_WAIT, (uint32_t)state, &timeout, NULL, 0);
}

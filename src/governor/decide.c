#include "governor/decide.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/size.h"
#include "governor/trial.h"
#include "memory/host.h"

#define SECOND ((uint64_t)1000000000)
#define MINUTE (60 * SECOND)
/* A margin of the host's memory that is left free: a neighbour that grows at 100 MiB/s is seen five
 * times before it has used up that of a group of 512 MiB. */
#define MARGIN_SHARE 10
#define MARGIN_LEAST (32 * FB_MIB)
#define MARGIN_MOST (2 * FB_GIB)
#define AHEAD_NS (SECOND / 2)  /* where memory will be by then, if it goes on like this */
#define STALLED_PERCENT 10     /* PSI, some, of ten seconds */
#define SWAPPED_PAGES 256      /* 1 MiB since the last look: no accident */
#define EFFECT_NS (2 * SECOND) /* an effect that has not come by then will not */
#define WINDOW_NS (SECOND / 2)
#define WINDOW_BATCHES 4       /* fewer say nothing about a rate */
#define WINDOW_MOST_NS (5 * SECOND)
#define WAIT_SHARE 0.05        /* of the trainer's time: more is worth a trial */
#define CALM_SHARE 0.01
#define IDLE_SHARE 0.1         /* of the workers' time: less is no lack of batches */
#define CALM_WINDOWS 10
#define REST_NS (10 * SECOND)  /* after a round of trials that did not help; doubles each time */
#define REST_MOST_NS (5 * MINUTE)
#define DELAY_SHARE 0.2        /* of its time the trainer could have run and had no CPU */
#define PREFETCH_MOST 64
#define WORKERS_PER_CPU 8      /* reads of a slow disk overlap far beyond the cores */

const char *const fb_action_names[FB_ACTION_COUNT] = {
#define FB_X(name, text) text,
    FB_ACTION_MAP(FB_X)
#undef FB_X
};

static struct fb_decision nothing(void)
{
    return (struct fb_decision){ .reason = "" };
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* As a number of bytes; a log may hold any. */
static uint64_t whole(double value)
{
    return value > 0 ? (uint64_t)fmin(value, 0x1p62) : 0;
}

static uint64_t setting(const struct fb_view *now, enum fb_action action)
{
    switch (action) {
    case FB_ACT_CACHE:
        return now->cache_limit;
    case FB_ACT_PREFETCH:
        return now->prefetch;
    case FB_ACT_WORKERS:
        return now->workers;
    case FB_ACT_CPU_SHARE:
        return now->cpu_share;
    default:
        return 0;
    }
}

static struct fb_decision act(const struct fb_view *now, struct fb_past *past,
                              enum fb_action action, uint64_t to, const char *reason)
{
    past->action = action;
    past->target = to;
    past->settle_ns = now->time_ns + EFFECT_NS;
    return (struct fb_decision){ .action = action,
                                 .from = setting(now, action),
                                 .to = to,
                                 .reason = reason };
}

/* ---- Memory comes first ---- */

static uint64_t margin(const struct fb_view *now)
{
    uint64_t tenth = now->room == FB_UNKNOWN ? MARGIN_MOST : now->room / MARGIN_SHARE;

    return fb_max(MARGIN_LEAST, fb_min(tenth, MARGIN_MOST));
}

/* How much more we have than at the last look. A slot is filled long after it was reserved, so it
 * counts when it is there. What this process takes beyond what was reserved is the trainer's. */
static double own_growth(const struct fb_view *now, struct fb_past *past)
{
    uint64_t ours;

    if (!past->begun) { /* the workers have just begun */
        past->untouched = now->reserved;
        return 0;
    }
    past->untouched += less(now->reserved, past->reserved);
    past->untouched = fb_min(past->untouched, now->reserved);
    ours = fb_min(less(now->anon, past->anon), past->untouched);
    past->untouched -= ours;
    return (double)ours - (double)less(past->anon, now->anon) + (double)now->shared -
           (double)past->shared;
}

/* Bytes a second by which others make less of what is left. Our own growth is no alarm: it ends at
 * the budget. Smoothed, because not all is read in the same moment: what one look took for others'
 * the next takes back. */
static double falling(const struct fb_view *now, struct fb_past *past)
{
    double passed = (double)less(now->time_ns, past->time_ns) / (double)SECOND, own, taken;

    own = own_growth(now, past);
    if (!past->begun || past->left == FB_UNKNOWN || now->left == FB_UNKNOWN || passed <= 0)
        return 0;
    taken = (double)past->left - (double)now->left - own;
    return fmax(0, (past->falling + taken / passed) / 2);
}

/* For the next look. */
static void remember(const struct fb_view *now, struct fb_past *past)
{
    past->begun = 1;
    past->time_ns = now->time_ns;
    past->left = now->left;
    past->reserved = now->reserved;
    past->anon = now->anon;
    past->shared = now->shared;
    past->swapped_out = now->swapped_out;
}

/* What is missing to the margin, now or soon; 0 if nothing is. *reason says why. */
static uint64_t shortage(const struct fb_view *now, const struct fb_past *past,
                         const char **reason)
{
    uint64_t keep = margin(now), soon;

    if (now->used > now->limit) {
        *reason = "the budget was lowered below what is in use";
        return now->used - now->limit;
    }
    if (now->alarmed) {
        *reason = "an alarm asks for memory";
        return fb_max(keep / 2, now->cache / 4);
    }
    if (now->left == FB_UNKNOWN)
        return 0;
    soon = less(now->left, whole(past->falling * (double)AHEAD_NS / (double)SECOND));
    if (soon < keep) {
        *reason = now->left < keep && now->in_group ? "the control group is near its limit"
                  : now->left < keep                ? "the host is short of memory"
                                                    : "memory is being used up quickly";
        return keep + keep / 2 - soon;
    }
    if (past->begun && now->swapped_out != FB_UNKNOWN && past->swapped_out != FB_UNKNOWN &&
        less(now->swapped_out, past->swapped_out) >= SWAPPED_PAGES) {
        *reason = "the host is swapping";
        return keep / 2;
    }
    if (now->stalled > STALLED_PERCENT && now->left < 2 * keep) {
        *reason = "tasks stand still for want of memory";
        return keep / 2;
    }
    return 0;
}

static void tell_memory(struct fb_decision *decision, const struct fb_view *now,
                        const struct fb_past *past)
{
    char left[32] = "n/a", room[32] = "n/a", speed[32];

    if (now->left != FB_UNKNOWN)
        fb_size_text(now->left, left);
    if (now->room != FB_UNKNOWN)
        fb_size_text(now->room, room);
    snprintf(decision->figures, sizeof(decision->figures), "%s left of %s, others take %s/s", left,
             room, fb_size_text(whole(past->falling), speed));
}

/* First the cache, then batches in flight, then workers; each as far as it can go. */
static struct fb_decision shrink(const struct fb_view *now, struct fb_past *past, uint64_t missing,
                                 const char *reason)
{
    /* A limit above what the cache holds takes nothing from it: count from what it holds. */
    uint64_t held = fb_min(now->cache, now->cache_limit), step;

    if (now->has_cache && !now->cache_fixed && held > now->cache_least) {
        /* Of a lowered budget the size is known; the host's shortage is an estimate. */
        step = now->used > now->limit ? missing : fb_max(missing, held / 8);
        step = fb_min(step, held - now->cache_least);
        past->shrunk = step;
        return act(now, past, FB_ACT_CACHE, held - step, reason);
    }
    if (!now->prefetch_fixed && now->prefetch > 1)
        return act(now, past, FB_ACT_PREFETCH, fb_max(1, now->prefetch - (now->prefetch + 3) / 4),
                   reason);
    if (!now->workers_fixed && now->workers > 1)
        return act(now, past, FB_ACT_WORKERS, fb_max(1, now->workers - (now->workers + 3) / 4),
                   reason);
    if ((!now->cache_fixed && !now->prefetch_fixed && !now->workers_fixed) ||
        (past->warned_ns && now->time_ns - past->warned_ns < MINUTE))
        return nothing();
    past->warned_ns = now->time_ns;
    return (struct fb_decision){ .action = FB_ACT_WARN, .reason = reason };
}

/* Is the effect of the last step still to come? */
static bool is_settling(const struct fb_view *now, struct fb_past *past)
{
    bool there;

    if (!past->action || now->time_ns >= past->settle_ns) {
        past->action = FB_ACT_NONE;
        return false;
    }
    switch ((enum fb_action)past->action) {
    case FB_ACT_CACHE:
        there = now->cache <= past->target || now->cache_limit < past->target;
        break;
    case FB_ACT_PREFETCH:
        there = now->in_flight <= past->target;
        break;
    default:
        there = true;
    }
    if (there)
        past->action = FB_ACT_NONE;
    return !there;
}

static struct fb_decision relieve(const struct fb_view *now, struct fb_past *past, bool *pressed)
{
    const char *reason = "";
    uint64_t missing = shortage(now, past, &reason);
    struct fb_decision decision;

    *pressed = missing > 0;
    if (!missing || is_settling(now, past))
        return nothing();
    decision = shrink(now, past, missing, reason);
    if (decision.action == FB_ACT_NONE)
        return decision;
    tell_memory(&decision, now, past);
    past->trial = FB_ACT_NONE; /* what it would have shown is lost */
    return decision;
}

/* ---- Then the trainer's time, window by window ---- */

struct window {
    double seconds, rate, wait, delay, idle;
    uint64_t ready; /* the fewest that were ready */
};

static void window_begin(const struct fb_view *now, struct fb_past *past)
{
    past->window_ns = now->time_ns;
    past->window_bytes = now->bytes;
    past->window_batches = now->batches;
    past->window_wait = now->wait_ns;
    past->window_delay = now->delay_ns;
    past->window_idle = past->window_ticks = 0;
    past->window_ready = UINT64_MAX;
}

/* Is a window full? Then it is told and the next one begins. */
static bool window_end(const struct fb_view *now, struct fb_past *past, struct window *window)
{
    uint64_t passed = now->time_ns - past->window_ns;
    bool known = now->delay_ns != FB_UNKNOWN && past->window_delay != FB_UNKNOWN;

    past->window_ticks++;
    past->window_idle += now->running < now->workers;
    past->window_ready = fb_min(past->window_ready, now->ready);
    if (passed < WINDOW_NS || (now->batches - past->window_batches < WINDOW_BATCHES &&
                               passed < WINDOW_MOST_NS))
        return false;
    window->seconds = (double)passed / (double)SECOND;
    window->rate = (double)(now->bytes - past->window_bytes) / window->seconds;
    window->wait = (double)less(now->wait_ns, past->window_wait) / (double)passed;
    window->delay = known ? (double)less(now->delay_ns, past->window_delay) / (double)passed : NAN;
    window->idle = (double)past->window_idle / (double)past->window_ticks;
    window->ready = past->window_ready;
    window_begin(now, past);
    return true;
}

static void tell_window(struct fb_decision *decision, const struct window *window)
{
    snprintf(decision->figures, sizeof(decision->figures),
             "%.0f MB/s, %.0f%% of the time waiting for data, workers idle %.0f%%",
             window->rate / 1e6, 100 * window->wait, 100 * window->idle);
}

static bool is_soon_after_pressure(const struct fb_view *now, const struct fb_past *past)
{
    return past->pressure_ns && now->time_ns - past->pressure_ns < MINUTE;
}

/* Fits, without taking what the host wants kept. */
static bool affords(const struct fb_view *now, uint64_t bytes)
{
    uint64_t could = less(now->limit, now->used) +
                     (now->has_cache && !now->cache_fixed ? less(now->cache, now->cache_least) : 0);

    return bytes <= could && (now->left == FB_UNKNOWN || now->left > 2 * margin(now) + bytes);
}

/* ---- Steps that must prove themselves ---- */

enum step { MORE_WORKERS, MORE_BATCHES, FEWER_WORKERS, STEPS };

static uint64_t bit(enum step step)
{
    return (uint64_t)1 << step;
}

static enum fb_action step_action(enum step step)
{
    return step == MORE_BATCHES ? FB_ACT_PREFETCH : FB_ACT_WORKERS;
}

static bool is_possible(const struct fb_view *now, enum step step, const struct window *window)
{
    switch (step) {
    case MORE_WORKERS:
        return !now->workers_fixed && now->workers && affords(now, now->per_worker) &&
               now->workers < now->cpus * WORKERS_PER_CPU;
    case MORE_BATCHES: /* they do not help workers that are never idle */
        return !now->prefetch_fixed && now->prefetch < PREFETCH_MOST &&
               affords(now, now->slot) && window->idle > IDLE_SHARE;
    default:
        return !now->workers_fixed && now->workers > 1;
    }
}

/* What could help a trainer that waits: workers if all are busy, else more batches to work on. And
 * workers may be too many: they share memory's bandwidth and the cores with the trainer. */
static enum step choose_step(const struct fb_view *now, const struct fb_past *past,
                             const struct window *window)
{
    static const enum step orders[2][STEPS] = { { MORE_WORKERS, MORE_BATCHES, FEWER_WORKERS },
                                                { MORE_BATCHES, FEWER_WORKERS, MORE_WORKERS } };
    const enum step *order = orders[window->idle > 0.5];

    for (int i = 0; i < STEPS; i++)
        if (!(past->tried & bit(order[i])) && is_possible(now, order[i], window))
            return order[i];
    return STEPS;
}

static void rest(const struct fb_view *now, struct fb_past *past)
{
    uint64_t length = fb_min(REST_NS << fb_min(past->failures, 5), REST_MOST_NS);

    past->rest_ns = now->time_ns + length;
    past->failures++;
    past->tried = 0;
}

/* Steps that help are followed by larger ones. */
static uint64_t step_size(uint64_t old, uint64_t helped)
{
    return helped >= 2 ? old : helped ? old / 2 : old / 4;
}

static struct fb_decision try_step(const struct fb_view *now, struct fb_past *past,
                                   const struct window *window)
{
    enum step step;
    uint64_t old, to, size;

    if (now->time_ns < past->rest_ns || now->starved || is_soon_after_pressure(now, past))
        return nothing();
    step = choose_step(now, past, window);
    if (step == STEPS) {
        if (past->tried)
            rest(now, past);
        return nothing();
    }
    old = setting(now, step_action(step));
    size = fb_max(1, step_size(old, step == FEWER_WORKERS ? 0 : past->helped));
    to = step == FEWER_WORKERS ? old - size : old + size;
    fb_trial_begin(now, past, step_action(step), old, to);
    return act(now, past, step_action(step), to,
               step == FEWER_WORKERS ? "the trainer waits for data: trying fewer, in turns"
                                     : "the trainer waits for data: trying more, in turns");
}

static void tell_trial(struct fb_decision *decision, const struct fb_past *past)
{
    uint64_t pairs = fb_max(1, past->trial_leg / 2), won = fb_trial_wins(past);

    snprintf(decision->figures, sizeof(decision->figures),
             "%.0f MB/s with %" PRIu64 ", %.0f MB/s with %" PRIu64 ", won %" PRIu64 " of %" PRIu64
             " rounds", past->trial_new_rate / (double)pairs / 1e6, past->trial_new,
             past->trial_old_rate / (double)pairs / 1e6, past->trial_old, won, pairs);
}

static struct fb_decision judge_trial(const struct fb_view *now, struct fb_past *past)
{
    enum fb_action action = (enum fb_action)past->trial;
    bool up = past->trial_new > past->trial_old;
    enum step step = action == FB_ACT_PREFETCH ? MORE_BATCHES : up ? MORE_WORKERS : FEWER_WORKERS;
    struct fb_decision decision;

    if (fb_trial_is_won(past)) { /* and perhaps still further; but not back */
        decision = act(now, past, action, past->trial_new,
                       up ? "more helped: it stays" : "fewer are not slower: it stays so");
        decision.from = past->trial_old;
        past->failures = 0;
        past->helped++;
        past->tried = step == MORE_WORKERS    ? bit(FEWER_WORKERS)
                      : step == FEWER_WORKERS ? bit(MORE_WORKERS)
                                              : 0;
    } else {
        decision = act(now, past, action, past->trial_old,
                       up ? "more did not help each time: taking it away again"
                          : "fewer were slower at times: putting them back");
        decision.from = past->trial_new;
        past->helped = 0;
        past->tried |= bit(step);
    }
    tell_trial(&decision, past);
    return decision;
}

static bool is_fixed(const struct fb_view *now, enum fb_action action)
{
    return action == FB_ACT_PREFETCH ? now->prefetch_fixed : now->workers_fixed;
}

static struct fb_decision end_trial(const struct fb_view *now, struct fb_past *past,
                                    enum fb_trial_news news)
{
    enum fb_action action = (enum fb_action)past->trial;
    struct fb_decision decision = nothing();

    if (news == FB_TRIAL_OVER) {
        decision = judge_trial(now, past);
    } else if (!is_fixed(now, action) && setting(now, action) != past->trial_old) {
        decision = act(now, past, action, past->trial_old,
                       "the trainer took nothing while more or fewer were tried: as before");
        snprintf(decision.figures, sizeof(decision.figures), "no batch in this turn");
    }
    past->trial = FB_ACT_NONE;
    window_begin(now, past);
    return decision;
}

static struct fb_decision mind_trial(const struct fb_view *now, struct fb_past *past)
{
    enum fb_action action = (enum fb_action)past->trial;
    struct fb_decision decision;
    enum fb_trial_news news;

    if (is_fixed(now, action)) /* the user has set it meanwhile */
        return end_trial(now, past, FB_TRIAL_VOID);
    news = fb_trial_look(now, past);
    if (news == FB_TRIAL_GOES_ON)
        return nothing();
    if (news != FB_TRIAL_CHANGE)
        return end_trial(now, past, news);
    decision = act(now, past, action, fb_trial_setting(past), "the other one's turn");
    decision.quiet = true;
    snprintf(decision.figures, sizeof(decision.figures), "%.0f MB/s before it",
             past->leg_rate / 1e6);
    return decision;
}

/* Batches that always lie ready serve nobody: their bytes are better in the cache. */
static struct fb_decision drop_surplus(const struct fb_view *now, struct fb_past *past,
                                       const struct window *window)
{
    past->calm = window->wait < CALM_SHARE && window->ready >= 2 ? past->calm + 1 : 0;
    if (past->calm < CALM_WINDOWS || now->prefetch_fixed || !now->has_cache || now->cache_fixed ||
        now->prefetch <= now->workers + 1 || now->cache_limit >= now->cache_most)
        return nothing();
    past->calm = 0;
    return act(now, past, FB_ACT_PREFETCH, now->prefetch - 1,
               "batches lie ready and nobody waits: their memory serves better as cache");
}

static struct fb_decision mind_cpu(const struct fb_view *now, struct fb_past *past,
                                   const struct window *window)
{
    uint64_t running = fb_min(now->cpu_share, now->workers);

    if (now->cpu_fixed || !now->workers)
        return nothing();
    if (window->delay > DELAY_SHARE && window->wait < CALM_SHARE && running > 1)
        return act(now, past, FB_ACT_CPU_SHARE, running - 1,
                   "the trainer has data but waits for a CPU");
    if (now->cpu_share < now->workers && window->wait > WAIT_SHARE)
        return act(now, past, FB_ACT_CPU_SHARE, now->cpu_share + 1,
                   "the trainer waits for data again");
    return nothing();
}

static struct fb_decision mind_trainer(const struct fb_view *now, struct fb_past *past)
{
    struct fb_decision decision;
    struct window window;

    if (past->trial)
        return mind_trial(now, past);
    if (!window_end(now, past, &window))
        return nothing();
    past->rate = window.rate;
    decision = mind_cpu(now, past, &window);
    if (!decision.action && window.wait > WAIT_SHARE && window.rate > 0)
        decision = try_step(now, past, &window);
    if (!decision.action)
        decision = drop_surplus(now, past, &window);
    if (decision.action)
        tell_window(&decision, &window);
    return decision;
}

/* ---- Then the cache gets what is over ---- */

static struct fb_decision fill_up(const struct fb_view *now, struct fb_past *past)
{
    /* What batches and workers may still want of the ledger is not the cache's. */
    uint64_t others = less(now->used, now->cache);
    uint64_t may = fb_min(now->cache_most, less(now->limit, others + 2 * now->slot));
    uint64_t step = fb_max(past->shrunk / 2, may / 16), keep = margin(now);
    struct fb_decision decision;
    char left[32] = "n/a";

    if (is_soon_after_pressure(now, past))
        may = fb_min(may, past->pressure_cache);
    if (!now->has_cache || now->cache_fixed || may < now->cache_limit + FB_MIB)
        return nothing();
    step = fb_min(step, may - now->cache_limit);
    /* Only once it is nearly full, and while the host has room for the step and its margin. */
    if (now->cache + now->cache_limit / 8 + step / 2 < now->cache_limit ||
        (now->left != FB_UNKNOWN && now->left < 2 * keep + step))
        return nothing();
    decision = act(now, past, FB_ACT_CACHE, now->cache_limit + step,
                   "the cache is full and there is memory to spare");
    past->action = FB_ACT_NONE; /* a limit that was raised has nothing to wait for */
    if (now->left != FB_UNKNOWN)
        fb_size_text(now->left, left);
    snprintf(decision.figures, sizeof(decision.figures), "%s left on the host", left);
    return decision;
}

struct fb_decision fb_governor_decide(const struct fb_view *now, struct fb_past *past)
{
    struct fb_decision decision;
    bool pressed;

    if (!past->begun)
        window_begin(now, past);
    past->falling = falling(now, past);
    decision = relieve(now, past, &pressed);
    if (pressed) {
        past->pressure_ns = now->time_ns;
        past->pressure_cache = decision.action == FB_ACT_CACHE
                                   ? decision.to
                                   : fb_min(now->cache_limit, fb_max(now->cache, 1));
        window_begin(now, past);
    } else if (!is_settling(now, past)) {
        decision = mind_trainer(now, past);
        if (!decision.action && !past->trial)
            decision = fill_up(now, past);
    }
    remember(now, past);
    return decision;
}

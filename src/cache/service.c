/*
 * service.c -- the thread of a shared cache: answers late comers, notices deaths at once (a pidfd
 * for each member), clears up behind them, and keeps the memory within the limit.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mix.h"
#include "cache/inside.h"
#include "cache/rendezvous.h"
#include "config/config.h"

#define STACK_BYTES ((size_t)96 * 1024)
#define TICK_MS 250 /* new members are seen this often: then their death is seen at once */
#define OPEN_NS 1000000000u
#define ASK_MS 200 /* a member that does not answer is stopped: ask the next */

struct fb_service {
    struct fb_service *next; /* in `all` */
    struct fb_cache *cache;
    char name[FB_NAME_TEXT];
    int holder, own; /* sockets bound to NAME (or -1) and NAME/row */
    int stop;        /* eventfd */
    bool running;
    pthread_t thread;
};

/*
 * A child must not keep the names and the memory alive after its parent's death: it closes them
 * when it is born. This needs a list of all shared caches of the process, used for nothing else.
 */
static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER;
static struct fb_service *all; /* guarded by all_lock */

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void close_fds(struct fb_service *service)
{
    close_fd(&service->holder);
    close_fd(&service->own);
    close_fd(&service->stop);
    fb_watch_release(&service->cache->watch);
}

static void before_fork(void)
{
    pthread_mutex_lock(&all_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&all_lock);
}

static void in_child(void)
{
    for (struct fb_service *service = all; service; service = service->next) {
        close_fds(service);
        close_fd(&service->cache->segment.fd);
    }
    all = NULL;
    pthread_mutex_unlock(&all_lock);
}

static void prepare_forks(void)
{
    pthread_atfork(before_fork, after_fork, in_child);
}

static void list_add(struct fb_service *service)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, prepare_forks);
    pthread_mutex_lock(&all_lock);
    service->next = all;
    all = service;
    pthread_mutex_unlock(&all_lock);
}

static void list_remove(struct fb_service *service)
{
    pthread_mutex_lock(&all_lock);
    for (struct fb_service **at = &all; *at; at = &(*at)->next)
        if (*at == service) {
            *at = service->next;
            break;
        }
    pthread_mutex_unlock(&all_lock);
}

void fb_service_look_around(struct fb_cache *cache)
{
    bool several = fb_members_several_jobs(&cache->segment);

    atomic_store(&cache->several_jobs, several);
    atomic_store(&cache->policy, fb_policy_effective(cache->options.policy,
                                                     cache->segment.geometry.policy, several));
}

static uint64_t hash_of(const struct fb_cache_options *options)
{
    uint64_t hash = fb_mix2(options->identity, options->unit_count);

    hash = fb_mix2(fb_mix2(hash, options->unit_bytes), FB_SEGMENT_VERSION);
    hash = fb_mix2(hash, fb_rendezvous_pid_space());
    return options->share == FB_SHARE_NODE ? hash : fb_mix2(hash, fb_cache_memory_domain());
}

void fb_cache_name(const struct fb_cache *cache, char name[FB_CACHE_NAME_BYTES])
{
    snprintf(name, FB_CACHE_NAME_BYTES, "%s", cache->service ? cache->service->name : "");
}

/* ---- find or make ---- */

/* Rows of the dead are swept by the living: if none is free there may be one in a moment. */
static int join(struct fb_cache *cache, forebay_error *error)
{
    if (fb_member_join(&cache->segment, cache->options.job, &cache->member))
        return FOREBAY_OK;
    fb_segment_release(&cache->segment, false);
    return fb_fail(error, FOREBAY_STOPPED, "it has %u members already", FB_ROWS_MAX);
}

static int attach(struct fb_cache *cache, int memory, forebay_error *error)
{
    int status = fb_segment_shared_attach(&cache->segment, memory, error);

    if (status) {
        close(memory);
        cache->segment.fd = -1;
        return status;
    }
    return join(cache, error);
}

static int make(struct fb_cache *cache, forebay_error *error)
{
    struct fb_geometry geometry;
    int status = fb_geometry_choose(&geometry, &cache->options, true, error);

    if (!status)
        status = fb_segment_shared_new(&cache->segment, &geometry, error);
    return status ? status : join(cache, error);
}

/* Between our joining and our own name somebody may have found nobody and begun anew: whoever
 * holds NAME has it right. */
static bool is_the_one(struct fb_cache *cache)
{
    struct fb_service *service = cache->service;
    uint64_t id = cache->segment.id;
    int memory;

    service->own = fb_rendezvous_bind(service->name, (int)cache->member.row);
    if (service->holder >= 0)
        return true;
    service->holder = fb_rendezvous_bind(service->name, FB_HOLDER);
    if (service->holder >= 0)
        return true;
    memory = fb_rendezvous_ask(service->name, FB_HOLDER, ASK_MS, &id);
    if (memory >= 0)
        close(memory);
    return memory < 0 || id == cache->segment.id;
}

static void detach(struct fb_cache *cache)
{
    fb_member_leave(&cache->segment, &cache->member);
    fb_segment_release(&cache->segment, false);
    close_fd(&cache->service->own);
}

/* One attempt. STOPPED: somebody else is at it, try again. */
static int find_or_make(struct fb_cache *cache, forebay_error *error)
{
    struct fb_service *service = cache->service;
    uint64_t id;
    int memory = fb_rendezvous_ask_all(service->name, ASK_MS, &id), status;

    if (memory < 0) {
        service->holder = fb_rendezvous_bind(service->name, FB_HOLDER);
        if (service->holder < 0)
            return fb_fail(error, FOREBAY_STOPPED, "whoever holds its name does not answer");
        /* Nobody else can begin one now; but somebody may have been there all along. */
        for (int row = 0; memory < 0 && row < (int)FB_ROWS_MAX; row++)
            memory = fb_rendezvous_ask(service->name, row, ASK_MS, &id);
    }
    status = memory >= 0 ? attach(cache, memory, error) : make(cache, error);
    if (status || is_the_one(cache))
        return status;
    detach(cache);
    return fb_fail(error, FOREBAY_STOPPED, "it is being made anew");
}

int fb_service_open(struct fb_cache *cache, forebay_error *error)
{
    struct fb_service *service = calloc(1, sizeof(*service));
    uint64_t deadline = fb_now_ns() + OPEN_NS;
    int status;

    if (!service)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory");
    *service = (struct fb_service){
        .cache = cache, .holder = -1, .own = -1, .stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
    };
    cache->service = service;
    list_add(service);
    fb_rendezvous_name(service->name, hash_of(&cache->options));
    if (service->stop < 0 || !fb_watch_possible()) {
        status = fb_fail_errno(error, FOREBAY_NO_MEMORY, "this system cannot watch processes");
    } else {
        do {
            status = find_or_make(cache, error);
            if (status == FOREBAY_STOPPED)
                nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL);
        } while (status == FOREBAY_STOPPED && fb_now_ns() < deadline);
    }
    if (!status)
        return FOREBAY_OK;
    fb_segment_release(&cache->segment, false);
    fb_service_close(cache, false);
    return status;
}

/* ---- the thread ---- */

/* The pidfds of the others; *timeout_ms is shortened if one needs to be looked at sooner. */
static unsigned watch_all(struct fb_cache *cache, struct pollfd *pollers, int *timeout_ms)
{
    unsigned high = fb_members_high(&cache->segment), count = 0;
    bool dead;

    *timeout_ms = TICK_MS;
    if (pthread_mutex_trylock(&cache->watch_lock)) {
        *timeout_ms = 10; /* a sweep is under way in another thread */
        return 0;
    }
    for (unsigned row = 0; row < high; row++) {
        int fd;

        if (row == cache->member.row)
            continue;
        fd = fb_watch_row(&cache->watch, &cache->segment, row, &dead);
        if (fd >= 0)
            pollers[count++] = (struct pollfd){ .fd = fd, .events = POLLIN };
        if (dead)
            *timeout_ms = 0;
    }
    pthread_mutex_unlock(&cache->watch_lock);
    return count;
}

static void tick(struct fb_cache *cache)
{
    struct fb_service *service = cache->service;

    fb_sweep_dead(cache);
    fb_sweep_recount(cache);
    if (service->holder < 0)
        service->holder = fb_rendezvous_bind(service->name, FB_HOLDER);
    if (service->own < 0)
        service->own = fb_rendezvous_bind(service->name, (int)cache->member.row);
    fb_rendezvous_answer(service->holder, cache->segment.fd, cache->segment.id);
    fb_rendezvous_answer(service->own, cache->segment.fd, cache->segment.id);
    fb_service_look_around(cache);
    fb_limit_settle(cache);
}

static void *serve(void *data)
{
    struct fb_cache *cache = data;
    struct fb_service *service = cache->service;
    struct pollfd pollers[FB_ROWS_MAX + 3];

    do {
        unsigned others;
        int timeout_ms;

        tick(cache);
        pollers[0] = (struct pollfd){ .fd = service->stop, .events = POLLIN };
        pollers[1] = (struct pollfd){ .fd = service->holder, .events = POLLIN };
        pollers[2] = (struct pollfd){ .fd = service->own, .events = POLLIN };
        others = watch_all(cache, pollers + 3, &timeout_ms);
        poll(pollers, 3 + others, timeout_ms);
    } while (!(pollers[0].revents & POLLIN));
    return NULL;
}

int fb_service_start(struct fb_cache *cache, forebay_error *error)
{
    struct fb_service *service = cache->service;
    pthread_attr_t attributes;
    sigset_t every, before;
    int failed;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    sigfillset(&every); /* signals are the program's own affair */
    pthread_sigmask(SIG_SETMASK, &every, &before);
    failed = pthread_create(&service->thread, &attributes, serve, cache);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return fb_fail(error, FOREBAY_NO_MEMORY, "cache: the system refused a thread");
    service->running = true;
    return FOREBAY_OK;
}

void fb_service_close(struct fb_cache *cache, bool forked)
{
    struct fb_service *service = cache->service;
    uint64_t one = 1;

    if (!service)
        return;
    if (service->running && !forked) {
        (void)!write(service->stop, &one, sizeof(one));
        pthread_join(service->thread, NULL);
    }
    list_remove(service);
    close_fds(service);
    free(service);
    cache->service = NULL;
}

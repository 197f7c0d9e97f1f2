/*
 * order_bucket.c -- samples of like length into one batch.
 *
 * An epoch's order is cut into stretches of 64 batches of all ranks. Inside each the samples are
 * sorted by length and cut into batches again, and these are shuffled. So a batch holds samples of
 * about one length, the ranks' batches of one step do, and where a run stands is still one
 * position. What is left over at the end of the last stretch stays at its end.
 *
 * The stretch that is in use is kept sorted, 8 bytes a sample; whoever asks for another one sorts
 * that under the lock.
 */
#include <pthread.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "order/order_internal.h"

#define BATCHES 64     /* of each rank in a stretch */
#define RANKS_KEPT 16u /* an epoch that so many ranks began can be gone on with by fewer */

struct fb_buckets {
    struct fb_budget *budget;
    uint64_t batch; /* samples */
    uint64_t length, seed;
    uint64_t room; /* entries in `sorted` */

    pthread_mutex_t lock;
    /* Guarded by lock: */
    bool is_there;
    uint64_t epoch, number, world; /* of the stretch that is sorted */
    uint64_t *sorted;              /* length << 32 | entry */
};

uint64_t fb_buckets_stretch(const struct fb_buckets *buckets, uint64_t world)
{
    uint64_t bytes;

    if (!fb_mul(buckets->batch * BATCHES, world, &bytes))
        return buckets->length;
    return fb_min(bytes, buckets->length);
}

bool fb_buckets_can(const struct fb_buckets *buckets, uint64_t world)
{
    return fb_buckets_stretch(buckets, world) <= buckets->room;
}

int fb_buckets_open(struct fb_buckets **out, uint64_t batch, uint64_t length, uint64_t world,
                    uint64_t seed, struct fb_budget *budget, forebay_error *error)
{
    struct fb_buckets *buckets =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*buckets), "source.buckets", error);

    if (!buckets)
        return error->status;
    *buckets =
        (struct fb_buckets){ .budget = budget, .batch = batch, .length = length, .seed = seed };
    pthread_mutex_init(&buckets->lock, NULL);
    buckets->room = fb_buckets_stretch(buckets, fb_max(world, RANKS_KEPT));
    buckets->sorted = fb_block_new(budget, FB_STAGE_INDEX, buckets->room, sizeof(uint64_t),
                                   "source.buckets", error);
    if (!buckets->sorted) {
        fb_buckets_close(buckets);
        return error->status;
    }
    *out = buckets;
    return FOREBAY_OK;
}

void fb_buckets_close(struct fb_buckets *buckets)
{
    if (!buckets)
        return;
    fb_block_free(buckets->budget, FB_STAGE_INDEX, buckets->sorted, buckets->room,
                  sizeof(uint64_t));
    pthread_mutex_destroy(&buckets->lock);
    fb_block_free(buckets->budget, FB_STAGE_INDEX, buckets, 1, sizeof(*buckets));
}

/* One lookup's view of a stretch. */
struct stretch {
    uint64_t first, count; /* positions */
    uint64_t step;         /* positions in a batch of all ranks */
    uint64_t full;         /* whole batches */
    struct fb_permutation batches;
};

static struct stretch stretch_of(const struct fb_buckets *buckets, uint64_t epoch, uint64_t world,
                                 uint64_t number)
{
    struct stretch stretch = { .count = fb_buckets_stretch(buckets, world) };
    uint64_t key = fb_mix2(fb_order_key(buckets->seed, FB_KEY_BUCKETS, epoch), number);

    stretch.first = number * stretch.count;
    stretch.count = fb_min(stretch.count, buckets->length - stretch.first);
    if (!fb_mul(buckets->batch, world, &stretch.step))
        stretch.step = UINT64_MAX;
    stretch.full = stretch.count / stretch.step;
    stretch.batches = fb_permutation_make(fb_max(1, stretch.full), key);
    return stretch;
}

/* Lengths are not below 0, so their bits rise as they do. */
static uint64_t length_bits(float length)
{
    uint32_t bits;

    if (!(length > 0))
        return 0;
    memcpy(&bits, &length, sizeof(bits));
    return bits;
}

static void sort_locked(struct fb_buckets *buckets, const struct stretch *stretch, uint64_t number,
                        const struct fb_bucket_view *view)
{
    for (uint64_t i = 0; i < stretch->count; i++) {
        uint64_t entry = view->entry(view->data, stretch->first + i);

        buckets->sorted[i] = length_bits(view->length(view->data, entry)) << 32 | entry;
    }
    fb_sort_by_bits(buckets->sorted, stretch->count, NULL, 63);
    buckets->epoch = view->epoch;
    buckets->world = view->world;
    buckets->number = number;
    buckets->is_there = true;
}

static void find_locked(struct fb_buckets *buckets, const struct stretch *stretch, uint64_t number,
                        const struct fb_bucket_view *view)
{
    if (!buckets->is_there || buckets->epoch != view->epoch || buckets->number != number ||
        buckets->world != view->world)
        sort_locked(buckets, stretch, number, view);
}

uint64_t fb_buckets_entry(struct fb_buckets *buckets, const struct fb_bucket_view *view,
                          uint64_t position)
{
    uint64_t number = position / fb_buckets_stretch(buckets, view->world), at, entry;
    struct stretch stretch = stretch_of(buckets, view->epoch, view->world, number);

    at = position - stretch.first;
    if (at / stretch.step < stretch.full)
        at = fb_permutation_apply(&stretch.batches, at / stretch.step) * stretch.step +
             at % stretch.step;
    pthread_mutex_lock(&buckets->lock);
    find_locked(buckets, &stretch, number, view);
    entry = buckets->sorted[at] & UINT32_MAX;
    pthread_mutex_unlock(&buckets->lock);
    return entry;
}

uint64_t fb_buckets_position(struct fb_buckets *buckets, const struct fb_bucket_view *view,
                             uint64_t before, uint64_t entry)
{
    uint64_t number = before / fb_buckets_stretch(buckets, view->world), at = 0;
    struct stretch stretch = stretch_of(buckets, view->epoch, view->world, number);

    pthread_mutex_lock(&buckets->lock);
    find_locked(buckets, &stretch, number, view);
    while (at + 1 < stretch.count && (buckets->sorted[at] & UINT32_MAX) != entry)
        at++;
    pthread_mutex_unlock(&buckets->lock);
    if (at / stretch.step < stretch.full)
        at = fb_permutation_invert(&stretch.batches, at / stretch.step) * stretch.step +
             at % stretch.step;
    return stretch.first + at;
}

/*
 * replacement.h -- on_error: replace. A sample that is missing or malformed is replaced by the first
 * good one of 16 others, drawn from (seed, epoch, sample): the same ones in every run.
 *
 * What the index already knows to be broken is replaced before the batch is laid out; what turns
 * out to be broken later is replaced by one that fits in the room it left.
 */
#ifndef FB_PIPELINE_REPLACEMENT_H
#define FB_PIPELINE_REPLACEMENT_H
#include "pipeline/fetch.h"

#define FB_REPLACEMENT_TRIES 16

/* Before the layout: a sample none of whose units is known to be broken, for one that has such.
 * Returns `sample` itself if none of the 16 is better. */
uint64_t fb_replacement_for_broken(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                                uint64_t epoch, uint64_t sample);
/* Is a unit of the sample known to be broken? Then `error`, if not NULL, says why. */
bool fb_sample_is_broken(const struct fb_fetcher *fetcher, struct fb_worker_state *state, uint64_t sample,
                         forebay_error *error);

/* After sample `at` of the batch failed: fetch another into its place. On failure `error` is the
 * one of the last that was tried, and the batch names the first sample again. */
int fb_replacement_fetch(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                      struct fb_batch *batch, uint64_t at, forebay_error *error);
/* Ragged batches only, when all samples are done: a replacement may be shorter than its room. */
void fb_replacement_commit(const struct fb_fetcher *fetcher, struct fb_worker_state *state,
                        struct fb_batch *batch);
#endif

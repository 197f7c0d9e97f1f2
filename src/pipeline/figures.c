#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/size.h"
#include "pipeline/pipeline_internal.h"

static struct fb_epoch_report *current(struct fb_figures *figures)
{
    uint64_t last = figures->epoch_count ? figures->epoch_count - 1 : 0;

    return &figures->epochs[last % FB_EPOCHS_KEPT];
}

void fb_figures_epoch_begin(struct fb_figures *figures, uint64_t epoch, uint64_t now_ns)
{
    if (figures->epoch_begun_ns)
        return; /* it has begun */
    figures->epoch_count++;
    figures->epoch_begun_ns = now_ns;
    *current(figures) = (struct fb_epoch_report){ .epoch = epoch };
}

void fb_figures_epoch_end(struct fb_figures *figures, uint64_t now_ns)
{
    if (!figures->epoch_begun_ns)
        return;
    current(figures)->seconds = (double)(now_ns - figures->epoch_begun_ns) * 1e-9;
    figures->epoch_begun_ns = 0;
}

uint64_t fb_figures_epoch_failures(struct fb_figures *figures)
{
    const struct fb_epoch_report *epoch = current(figures);

    return epoch->skipped + epoch->replaced;
}

void fb_figures_deliver(struct fb_figures *figures, const struct fb_batch *batch, int status)
{
    struct fb_epoch_report *epoch = current(figures);
    uint64_t samples = status ? 0 : batch->shown.samples;

    figures->failed += status != FOREBAY_OK;
    figures->samples += samples;
    figures->batches += samples > 0;
    figures->bytes += samples ? batch->bytes : 0;
    epoch->samples += samples;
    epoch->batches += samples > 0;
}

void fb_figures_batch(struct fb_figures *figures, const struct fb_batch *batch)
{
    struct fb_epoch_report *epoch = current(figures);

    figures->skipped += batch->skipped;
    figures->replaced += batch->replaced;
    figures->hits += batch->hits;
    figures->misses += batch->misses;
    figures->bytes_read += batch->bytes_read;
    epoch->hits += batch->hits;
    epoch->misses += batch->misses;
    epoch->bytes_read += batch->bytes_read;
    epoch->skipped += batch->skipped;
    epoch->replaced += batch->replaced;
    figures->failure_count += batch->skipped + batch->replaced;
    for (unsigned i = 0; i < batch->failure_count; i++) { /* the first ones are kept */
        uint64_t place = 0;

        while (place < FB_FAILURES_KEPT && figures->failures[place].reason[0])
            place++;
        if (place < FB_FAILURES_KEPT)
            figures->failures[place] = batch->failures[i];
    }
}

/* Bucket b holds waits up to 1 us x sqrt(2)^b. */
void fb_figures_wait(struct fb_figures *figures, uint64_t wait_ns)
{
    double steps = wait_ns > 1000 ? ceil(2 * log2((double)wait_ns / 1000)) : 0;

    figures->waits[(unsigned)fmin(steps, FB_WAIT_BUCKETS - 1)]++;
    figures->wait_ns += wait_ns;
}

static double percentile_ms(const struct fb_figures *figures, double share)
{
    uint64_t total = 0, seen = 0;

    for (unsigned b = 0; b < FB_WAIT_BUCKETS; b++)
        total += figures->waits[b];
    for (unsigned b = 0; b < FB_WAIT_BUCKETS && total; b++) {
        seen += figures->waits[b];
        if ((double)seen >= share * (double)total)
            return 1e-3 * exp2(b / 2.0);
    }
    return NAN;
}

static void copy_epochs(struct fb_pipeline_report *report, const struct fb_figures *figures,
                        uint64_t now)
{
    uint64_t kept = fb_min(figures->epoch_count, FB_EPOCHS_KEPT);

    report->epoch_count = figures->epoch_count;
    for (uint64_t i = 0; i < kept; i++)
        report->epochs[i] = figures->epochs[(figures->epoch_count - kept + i) % FB_EPOCHS_KEPT];
    if (figures->epoch_begun_ns && kept)
        report->epochs[kept - 1].seconds = (double)(now - figures->epoch_begun_ns) * 1e-9;
}

static void copy_figures(struct fb_pipeline_report *report, const struct fb_figures *figures,
                         uint64_t now)
{
    uint64_t since = figures->waits_since_ns, waits = since && now > since ? now - since : 0;

    report->samples = figures->samples;
    report->batches = figures->batches;
    report->bytes = figures->bytes;
    report->delivered_ns = figures->delivered_ns;
    report->skipped = figures->skipped;
    report->replaced = figures->replaced;
    report->failed = figures->failed;
    report->hits = figures->hits;
    report->misses = figures->misses;
    report->bytes_read = figures->bytes_read;
    report->busy_ns = figures->busy_ns;
    report->read_ns = figures->read_ns;
    report->copy_ns = figures->copy_ns;
    report->first_batch_s = figures->first_batch_ns ? (double)figures->first_batch_ns * 1e-9 : NAN;
    /* A wait that is not over yet counts: else a trainer that starves looks like a busy one. */
    report->wait_s = (double)(figures->wait_ns + waits) * 1e-9;
    report->wait_p50_ms = percentile_ms(figures, 0.50);
    report->wait_p99_ms = percentile_ms(figures, 0.99);
    report->failure_count = figures->failure_count;
    memcpy(report->failures, figures->failures, sizeof(report->failures));
}

void fb_pipeline_read_report(struct fb_pipeline *pipeline, struct fb_pipeline_report *report)
{
    uint64_t now = fb_now_ns();

    memset(report, 0, sizeof(*report));
    pthread_mutex_lock(&pipeline->lock);
    copy_figures(report, &pipeline->figures, now);
    copy_epochs(report, &pipeline->figures, now);
    report->workers = pipeline->worker_target;
    report->prefetch = pipeline->prefetch;
    report->cpu_share = pipeline->cpu_share;
    report->in_flight = pipeline->tail - pipeline->head;
    for (uint64_t place = pipeline->head; place < pipeline->tail; place++)
        report->ready += (*fb_ring_at(pipeline, place))->ready;
    if (pipeline->upload)
        pipeline->stage->read_report_locked(pipeline->upload, &report->device);
    report->held = pipeline->held;
    report->running = pipeline->running;
    report->starved = pipeline->starved;
    report->caller = (uint64_t)pipeline->caller;
    report->held_bytes = pipeline->held_bytes;
    report->abandoned_workers = pipeline->abandoned;
    report->epoch = pipeline->delivered.at.epoch;
    report->position = pipeline->delivered.first;
    report->epoch_samples = pipeline->delivered.count;
    report->epoch_batches = (pipeline->delivered.count + pipeline->batch_size - 1) /
                            pipeline->batch_size;
    pthread_mutex_unlock(&pipeline->lock);
    report->seconds = (double)(now - pipeline->opened_ns) * 1e-9;
}

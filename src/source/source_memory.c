/* source_memory.c -- samples that need no file: what the tests of everything above stand on. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "memory/block.h"
#include "source/source.h"

struct memory_source {
    struct fb_source base; /* first, so that a pointer to one is a pointer to the other */
    struct fb_field field;
    struct fb_memory_source_options options;
    struct fb_budget *budget;
};

static const struct fb_source_ops memory_ops;

static uint64_t rows_of(const struct memory_source *memory, uint64_t sample)
{
    return memory->options.rows_of ? memory->options.rows_of(sample) : memory->options.rows;
}

static void memory_close(struct fb_source *source)
{
    struct memory_source *memory = (struct memory_source *)source;

    fb_block_free(memory->budget, FB_STAGE_INDEX, memory, 1, sizeof(*memory));
}

static void describe(struct memory_source *memory)
{
    const struct fb_memory_source_options *options = &memory->options;
    uint64_t total = 0;

    for (uint64_t i = 0; options->rows_of && i < options->samples; i++)
        total += options->rows_of(i) * sizeof(uint32_t);
    memory->field = (struct fb_field){ .name = "data", .dtype = FOREBAY_U32, .items = 1,
                                       .vary = options->rows_of ? 1 : 0, .ndim = 1,
                                       .shape = { options->rows_of ? 0 : options->rows },
                                       .cell_bytes = sizeof(uint32_t) };
    if (options->finished) {
        memory->field.finished = true;
        memory->field.vary = 0;
        memory->field.shape[0] = 2;
    }
    memory->base = (struct fb_source){
        .ops = &memory_ops,
        .sample_count = options->samples,
        .unit_count = options->samples,
        .field_count = 1,
        .fields = &memory->field,
        .parts_max = 1,
        .unit_bytes_max = options->rows * sizeof(uint32_t),
        .unit_bytes_total =
            options->rows_of ? total : options->samples * options->rows * sizeof(uint32_t),
        .rows_alone = true,
        .uniform = options->finished || !options->rows_of,
        .identity = fb_mix2(options->samples, options->rows),
    };
}

int fb_source_memory_open(struct fb_source **out, const struct fb_memory_source_options *options,
                          struct fb_budget *budget, forebay_error *error)
{
    struct memory_source *memory;
    uint64_t bytes;

    if (!fb_mul(options->samples, options->rows, &bytes) || bytes > UINT64_MAX / sizeof(uint32_t))
        return fb_fail(error, FOREBAY_BAD_CONFIG, "memory: more samples than a number can count");
    memory = fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*memory), "memory source", error);
    if (!memory)
        return fb_failed(error);
    memory->options = *options;
    memory->budget = budget;
    describe(memory);
    *out = &memory->base;
    return FOREBAY_OK;
}

static unsigned memory_parts(const struct fb_source *source, uint64_t sample, struct fb_part *parts)
{
    (void)source;
    parts[0] = (struct fb_part){ .unit = sample, .rows = FB_ALL_ROWS };
    return 1;
}

static struct fb_extent memory_extent(const struct fb_source *source, uint64_t unit)
{
    const struct memory_source *memory = (const struct memory_source *)source;
    uint64_t unit_row = memory->options.finished ? sizeof(uint32_t) : 1;

    return (struct fb_extent){ .known = FB_EXTENT_EXACT, .columns = 1,
                               .rows = rows_of(memory, unit) * unit_row };
}

static int memory_load(const struct fb_source *source, const struct fb_load *load,
                       forebay_error *error)
{
    const struct memory_source *memory = (const struct memory_source *)source;
    uint64_t rows = memory_extent(source, load->unit).rows;
    uint64_t row_bytes = fb_field_unit_cell(&memory->field);
    uint32_t value = (uint32_t)load->unit;
    int status = FOREBAY_OK;

    if (memory->options.before_load)
        status = memory->options.before_load(memory->options.data, load->unit);
    if (status)
        return fb_fail(error, (forebay_status)status, "memory: sample %" PRIu64 " fails as asked",
                       load->unit);
    if (load->first_row > rows || load->rows > rows - load->first_row ||
        load->bytes != load->rows * row_bytes)
        return fb_fail(error, FOREBAY_BAD_USE, "memory: sample %" PRIu64 " has %" PRIu64
                       " rows, not %" PRIu64 " from row %" PRIu64 " on in %" PRIu64 " bytes",
                       load->unit, rows, load->rows, load->first_row, load->bytes);
    for (uint64_t i = 0; i < load->bytes / sizeof(value); i++)
        memcpy((char *)load->to + i * sizeof(value), &value, sizeof(value));
    return FOREBAY_OK;
}

static int memory_finish(const struct fb_source *source, uint64_t sample, const void *in,
                         struct fb_extent extent, struct fb_random random, void *out,
                         uint64_t out_bytes, struct fb_scratch scratch, forebay_error *error)
{
    uint32_t made[2];

    (void)source, (void)scratch;
    if (extent.rows < sizeof(made[0]) || out_bytes != sizeof(made))
        return fb_fail(error, FOREBAY_BAD_USE, "memory: sample %" PRIu64 " cannot be finished from "
                       "%" PRIu64 " bytes to %" PRIu64, sample, extent.rows, out_bytes);
    memcpy(made, (const char *)in + extent.rows - sizeof(made[0]), sizeof(made[0]));
    made[1] = (uint32_t)fb_random_next(&random);
    memcpy(out, made, sizeof(made));
    return FOREBAY_OK;
}

static void memory_place(const struct fb_source *source, uint64_t unit, char *text, size_t size)
{
    (void)source;
    snprintf(text, size, "sample %" PRIu64, unit);
}

static const struct fb_source_ops memory_ops = {
    .kind = "memory",
    .description = "samples made up in memory, for tests",
    .close = memory_close,
    .parts = memory_parts,
    .extent = memory_extent,
    .load = memory_load,
    .finish = memory_finish,
    .place = memory_place,
};

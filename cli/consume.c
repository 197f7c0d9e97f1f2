#include "consume.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "generate/checksum.h"

#define HOST 1 /* DLPack's code */

static const forebay_field *companion(const forebay_batch *batch, const forebay_field *field,
                                      const char *suffix)
{
    char name[160];

    snprintf(name, sizeof(name), "%s%s", field->name, suffix);
    return forebay_batch_field(batch, name);
}

/* Is it <field>_length or <field>_offsets of another one? */
static bool is_companion(const forebay_batch *batch, const forebay_field *field)
{
    static const char *const suffixes[] = { "_length", "_offsets" };
    char name[160];

    for (unsigned i = 0; i < 2; i++) {
        size_t length = strlen(field->name), tail = strlen(suffixes[i]);

        if (length <= tail || length >= sizeof(name) ||
            strcmp(field->name + length - tail, suffixes[i]) != 0)
            continue;
        memcpy(name, field->name, length - tail);
        name[length - tail] = '\0';
        if (forebay_batch_field(batch, name))
            return true;
    }
    return false;
}

static uint64_t elements(const int64_t *shape, unsigned from, unsigned to)
{
    uint64_t count = 1;

    for (unsigned i = from; i < to; i++)
        count *= (uint64_t)shape[i];
    return count;
}

/* Equal pieces, one behind the other. */
static uint64_t sum_equal(const forebay_field *field, uint64_t pieces)
{
    const unsigned char *data = field->data;
    uint64_t bytes = pieces ? field->bytes / pieces : 0, sum = 0;

    for (uint64_t i = 0; i < pieces; i++)
        sum += fb_checksum(data + i * bytes, bytes);
    return sum;
}

static uint64_t sum_ragged(const forebay_field *field, const forebay_field *offsets)
{
    const unsigned char *data = field->data;
    const int64_t *at = offsets->data;
    uint64_t pieces = elements(offsets->shape, 0, offsets->ndim), sum = 0;
    uint64_t row = field->shape[0] ? field->bytes / (uint64_t)field->shape[0] : 0;

    for (uint64_t i = 0; i + 1 < pieces; i++)
        sum += fb_checksum(data + (uint64_t)at[i] * row, (uint64_t)(at[i + 1] - at[i]) * row);
    return sum;
}

/* The lengths have the leading dimensions of the field: [B] or, for sequences, [B, items]. */
static bool lengths_fit(const forebay_field *field, const forebay_field *lengths)
{
    if (lengths->ndim >= field->ndim || lengths->dtype != FOREBAY_I64)
        return false;
    return memcmp(field->shape, lengths->shape, lengths->ndim * sizeof(field->shape[0])) == 0;
}

static uint64_t sum_padded(const forebay_field *field, const forebay_field *lengths)
{
    const unsigned char *data = field->data;
    const int64_t *length = lengths->data;
    uint64_t pieces = elements(field->shape, 0, lengths->ndim), sum = 0;
    uint64_t bytes = pieces ? field->bytes / pieces : 0;
    uint64_t rows = (uint64_t)field->shape[lengths->ndim], row = rows ? bytes / rows : 0;

    for (uint64_t i = 0; i < pieces; i++)
        sum += fb_checksum(data + i * bytes, (uint64_t)length[i] * row);
    return sum;
}

static uint64_t sum_batch(const forebay_batch *batch)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < batch->field_count; i++) {
        const forebay_field *field = &batch->fields[i];
        const forebay_field *offsets = companion(batch, field, "_offsets");
        const forebay_field *lengths = companion(batch, field, "_length");

        if (strcmp(field->name, "index") == 0 || is_companion(batch, field) || !field->bytes)
            continue;
        if (offsets)
            sum += sum_ragged(field, offsets);
        else if (lengths && lengths_fit(field, lengths))
            sum += sum_padded(field, lengths);
        else
            sum += sum_equal(field, batch->samples);
    }
    return sum;
}

/* The same batch with its fields copied to `memory`. */
static int copy_back(const forebay_batch *batch, forebay_field *fields, char *memory,
                     forebay_error *error)
{
    int status = FOREBAY_OK;

    for (size_t i = 0; i < batch->field_count && !status; i++) {
        fields[i] = batch->fields[i];
        fields[i].data = memory;
        status = forebay_batch_read(batch, &batch->fields[i], memory, error);
        memory += fb_round_up(fields[i].bytes, 64);
    }
    return status;
}

int consume_batch(uint64_t *sum, const forebay_batch *batch, forebay_error *error)
{
    forebay_batch copy = *batch;
    forebay_field *fields;
    char *memory;
    int status;

    if (batch->device_type == HOST) {
        *sum += sum_batch(batch);
        return FOREBAY_OK;
    }
    fields = calloc(batch->field_count, sizeof(*fields));
    memory = aligned_alloc(64, fb_round_up(batch->bytes + 64 * (batch->field_count + 1), 64));
    if (fields && memory)
        status = copy_back(batch, fields, memory, error);
    else
        status = fb_fail(error, FOREBAY_NO_MEMORY, "no memory to read a batch back");
    if (!status) {
        copy.fields = fields;
        copy.device_type = HOST;
        *sum += sum_batch(&copy);
    }
    free(fields);
    free(memory);
    return status;
}

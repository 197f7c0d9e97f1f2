/*
 * state.c -- an order's state as one line of JSON, and back.
 *
 * A state says how far all ranks of the run that saved it are if they are in step: `position` is
 * global. What the order depends on is in it, too, so that a state cannot be used with another.
 * Texts come from files that may be anything: bounded, typed, every number checked.
 */
#include <jansson.h>
#include <string.h>

#include "base/size.h"
#include "order/order_internal.h"

#define STATE_VERSION 2 /* 1 had neither "data" nor "sum" */
#define MOST_TEXT 4096
typedef unsigned long long llu; /* for messages */

struct state {
    uint64_t epoch, start, position;
    uint64_t ranks;        /* of the run that saved it */
    uint64_t world, nodes; /* the epoch's global order was made for these */
    int ends;
};

/* All of a state but "sum" itself. */
static uint64_t state_sum(const json_t *root)
{
    static const char *const keys[] = { "forebay_state", "seed",     "samples", "length", "order",
                                        "check",         "data",     "epoch",   "start",  "position",
                                        "ranks",         "world",    "nodes",   "ends" };
    uint64_t sum = 0;

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const json_t *value = json_object_get(root, keys[i]);

        sum = fb_mix2(sum, (uint64_t)json_integer_value(value));
        for (const char *at = json_is_string(value) ? json_string_value(value) : ""; *at; at++)
            sum = fb_mix2(sum, (unsigned char)*at);
    }
    return sum;
}

static int hex_set(json_t *root, const char *name, uint64_t value)
{
    char text[24];

    snprintf(text, sizeof(text), "%016llx", (llu)value);
    return json_object_set_new(root, name, json_string(text));
}

int fb_order_save(const struct fb_order *order, struct fb_cursor at, uint64_t local, char *text,
                  size_t size, forebay_error *error)
{
    char seed[24];
    json_t *root;
    size_t length;

    if (local > fb_order_count(order, at))
        return fb_fail(error, FOREBAY_BAD_USE, "a state after %llu positions of %llu", (llu)local,
                       (llu)fb_order_count(order, at));
    snprintf(seed, sizeof(seed), "%llu", (llu)order->seed); /* 64 bits: more than a JSON integer */
    root = json_pack("{si ss sI sI ss sI sI sI sI sI sI ss}", "forebay_state", STATE_VERSION,
                     "seed", seed, "samples", (json_int_t)order->samples, "length",
                     (json_int_t)order->length, "order", order->text, "epoch",
                     (json_int_t)at.epoch, "start", (json_int_t)at.start, "position",
                     (json_int_t)(at.start + local * order->ranks.world), "ranks",
                     (json_int_t)order->ranks.world, "world", (json_int_t)at.world, "nodes",
                     (json_int_t)at.nodes, "ends", order->ends == FB_ENDS_PAD ? "pad" : "drop");
    if (!root || hex_set(root, "check", order->hash) || hex_set(root, "data", order->fingerprint) ||
        hex_set(root, "sum", state_sum(root))) {
        json_decref(root);
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a state");
    }
    length = json_dumpb(root, text, size, JSON_COMPACT);
    json_decref(root);
    if (!length)
        return fb_fail(error, FOREBAY_NO_MEMORY, "no memory for a state");
    if (length >= size)
        return fb_fail(error, FOREBAY_BAD_USE, "a state of %zu bytes does not fit in %zu",
                       length + 1, size);
    text[length] = '\0';
    return FOREBAY_OK;
}

static int number_get(const json_t *root, const char *name, uint64_t most, uint64_t *number,
                      forebay_error *error)
{
    const json_t *value = json_object_get(root, name);

    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state has no \"%s\" that is a number; it is damaged or not ours", name);
    *number = (uint64_t)json_integer_value(value);
    if (*number > most)
        return fb_fail(error, FOREBAY_BAD_STATE, "the state's \"%s\" is %llu, more than can be",
                       name, (llu)*number);
    return FOREBAY_OK;
}

static const char *text_get(const json_t *root, const char *name)
{
    const char *text = json_string_value(json_object_get(root, name));

    return text ? text : "";
}

/* Is it a state of this order? Says what differs, and which value each has. */
static int check_same(const struct fb_order *order, const json_t *root, forebay_error *error)
{
    char own[24];
    uint64_t samples = 0, length = 0, version = 0;
    int status = number_get(root, "forebay_state", UINT64_MAX, &version, error);

    if (!status && (version < 1 || version > STATE_VERSION))
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state is of version %llu, this forebay reads versions 1 to %d",
                       (llu)version, STATE_VERSION);
    if (!status)
        status = number_get(root, "samples", UINT64_MAX, &samples, error);
    if (!status)
        status = number_get(root, "length", UINT64_MAX, &length, error);
    if (status)
        return status;
    snprintf(own, sizeof(own), "%llu", (llu)order->seed);
    if (strcmp(text_get(root, "seed"), own) != 0)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state was saved with order.seed %.24s, this loader has %s; set it so",
                       text_get(root, "seed"), own);
    if (samples != order->samples)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state was saved with %llu samples, the source has %llu now",
                       (llu)samples, (llu)order->samples);
    if (strcmp(text_get(root, "order"), order->text) != 0)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state was saved with another order (%.127s), this loader has: %s",
                       text_get(root, "order"), order->text);
    if (length != order->length)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state was saved with epochs of %llu positions, this loader has %llu",
                       (llu)length, (llu)order->length);
    snprintf(own, sizeof(own), "%016llx", (llu)order->hash);
    if (strcmp(text_get(root, "check"), own) != 0)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the sequences, the subset's or the weights' file are not those that the "
                       "state was saved with");
    snprintf(own, sizeof(own), "%016llx", (llu)order->fingerprint);
    if (version > 1 && order->fingerprint && strcmp(text_get(root, "data"), own) != 0)
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state was saved with other data: the source has as many samples, but the "
                       "names or sizes of its files differ (fingerprint %.16s then, %s now)",
                       text_get(root, "data"), own);
    return FOREBAY_OK;
}

/* A state that was edited, or cut and mended, is not gone on from. */
static int check_sum(const json_t *root, forebay_error *error)
{
    char own[24];

    if (json_integer_value(json_object_get(root, "forebay_state")) < 2)
        return FOREBAY_OK;
    snprintf(own, sizeof(own), "%016llx", (llu)state_sum(root));
    if (strcmp(text_get(root, "sum"), own) == 0)
        return FOREBAY_OK;
    return fb_fail(error, FOREBAY_BAD_STATE, "the state is damaged: its checksum is \"%.16s\", and "
                   "what it holds has %s; use an earlier state", text_get(root, "sum"), own);
}

static int parse_numbers(const struct fb_order *order, const json_t *root, struct state *state,
                         forebay_error *error)
{
    /* Times are epoch * length + position: they must stay far below 2^64. */
    uint64_t most_epoch = ((uint64_t)1 << 62) / order->length;
    const char *ends = text_get(root, "ends");
    int status = number_get(root, "epoch", most_epoch, &state->epoch, error);

    if (!status)
        status = number_get(root, "start", order->length, &state->start, error);
    if (!status)
        status = number_get(root, "ranks", FB_MAX_SAMPLES, &state->ranks, error);
    if (!status)
        status = number_get(root, "position", 2 * FB_MAX_SAMPLES, &state->position, error);
    if (!status)
        status = number_get(root, "world", FB_MAX_SAMPLES, &state->world, error);
    if (!status)
        status = number_get(root, "nodes", FB_MAX_SAMPLES, &state->nodes, error);
    if (status)
        return status;
    if (strcmp(ends, "pad") != 0 && strcmp(ends, "drop") != 0)
        return fb_fail(error, FOREBAY_BAD_STATE, "the state's \"ends\" is neither pad nor drop");
    state->ends = strcmp(ends, "pad") == 0 ? FB_ENDS_PAD : FB_ENDS_DROP;
    return FOREBAY_OK;
}

/* Numbers that are each in range may still not belong together. */
static int check_numbers(const struct fb_order *order, const struct state *state,
                         forebay_error *error)
{
    uint64_t done;

    if (!state->ranks || state->position < state->start || !state->world || !state->nodes ||
        state->nodes > state->world)
        goto damaged;
    done = state->position - state->start;
    if (done % state->ranks != 0 ||
        done / state->ranks > fb_order_share(order, state->ends, state->start, state->ranks))
        goto damaged;
    if (order->buckets && (!state->world || !fb_buckets_can(order->buckets, state->world)))
        return fb_fail(error, FOREBAY_BAD_STATE,
                       "the state is of an epoch that %llu ranks began: too many for the buckets of "
                       "%llu ranks; begin with the next epoch", (llu)state->world,
                       (llu)order->ranks.world);
    if (order->form != FB_FORM_STICKY || fb_order_slices(order, state->world, state->nodes))
        return FOREBAY_OK;

damaged:
    return fb_fail(
        error, FOREBAY_BAD_STATE,
        "the state is damaged: position %llu of a stretch from %llu for %llu ranks (%llu "
        "ranks on %llu nodes at first) of %llu positions cannot be",
        (llu)state->position, (llu)state->start, (llu)state->ranks, (llu)state->world,
        (llu)state->nodes, (llu)order->length);
}

static int state_parse(const struct fb_order *order, const char *text, struct state *state,
                       forebay_error *error)
{
    size_t length = strnlen(text, MOST_TEXT + 1);
    json_error_t reason;
    json_t *root;
    int status;

    if (length > MOST_TEXT)
        return fb_fail(error, FOREBAY_BAD_STATE, "the state is longer than %d bytes: not ours",
                       MOST_TEXT);
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &reason);
    if (!json_is_object(root)) {
        status = fb_fail(error, FOREBAY_BAD_STATE, "the state is not a JSON object%s%s",
                         root ? "" : ": ", root ? "" : reason.text);
        json_decref(root);
        return status;
    }
    status = check_same(order, root, error);
    if (!status)
        status = parse_numbers(order, root, state, error);
    if (!status)
        status = check_numbers(order, state, error);
    if (!status)
        status = check_sum(root, error);
    json_decref(root);
    return status;
}

bool fb_order_state_is_old(const char *text)
{
    json_t *root = json_loadb(text, strnlen(text, MOST_TEXT), 0, NULL);
    bool old = json_integer_value(json_object_get(root, "forebay_state")) == 1;

    json_decref(root);
    return old;
}

static uint64_t local_of(const struct state *state)
{
    return (state->position - state->start) / state->ranks;
}

/* The end of an epoch is the beginning of the next. */
static void step_over_end(const struct fb_order *order, struct state *state)
{
    if (local_of(state) < fb_order_share(order, state->ends, state->start, state->ranks))
        return;
    state->epoch++;
    state->start = state->position = 0;
    state->world = order->ranks.world;
    state->nodes = order->ranks.nodes;
}

static bool is_behind(const struct state *a, const struct state *b)
{
    return a->epoch != b->epoch ? a->epoch < b->epoch : a->position < b->position;
}

/* How far `ahead` is in front of `behind`, in positions of its rank. False if they cannot be two
 * ranks of one run. */
static bool distance(const struct fb_order *order, const struct state *behind,
                     const struct state *ahead, uint64_t *positions)
{
    uint64_t epochs = ahead->epoch - behind->epoch, full, between;

    if (ahead->ranks != behind->ranks || ahead->ends != behind->ends)
        return false;
    if (!epochs) {
        *positions = local_of(ahead) - local_of(behind);
        return ahead->start == behind->start &&
               (!behind->position ||
                (ahead->world == behind->world && ahead->nodes == behind->nodes));
    }
    full = fb_order_share(order, ahead->ends, 0, ahead->ranks);
    if (ahead->start || !fb_mul(epochs - 1, full, &between))
        return false;
    *positions = fb_order_share(order, behind->ends, behind->start, behind->ranks) -
                 local_of(behind) + between + local_of(ahead);
    return true;
}

static int smallest(const struct fb_order *order, const char *const *texts, size_t count,
                    struct state *least, forebay_error *error)
{
    for (size_t i = 0; i < count; i++) {
        struct state state;
        int status = state_parse(order, texts[i], &state, error);

        if (status) {
            if (count > 1)
                fb_error_context(error, "state %zu of %zu", i + 1, count);
            return status;
        }
        step_over_end(order, &state);
        if (i == 0 || is_behind(&state, least))
            *least = state;
    }
    return FOREBAY_OK;
}

int fb_order_load(const struct fb_order *order, const char *const *texts, size_t count,
                  struct fb_cursor *at, uint64_t *repeated, forebay_error *error)
{
    struct state least, state;
    uint64_t again = 0, ahead;
    int status;

    if (!count)
        return fb_fail(error, FOREBAY_BAD_USE, "no state to go on from");
    status = smallest(order, texts, count, &least, error);
    /* Parsed again rather than kept: as many ranks as there are, no memory. */
    for (size_t i = 0; !status && i < count; i++) {
        status = state_parse(order, texts[i], &state, error);
        if (status)
            break;
        step_over_end(order, &state);
        if (!distance(order, &least, &state, &ahead) || !fb_add(again, ahead, &again))
            status = fb_fail(error, FOREBAY_BAD_STATE,
                             "state %zu of %zu is of another run than the others: give the states "
                             "that the ranks of one run saved at one time",
                             i + 1, count);
    }
    if (status)
        return status;
    *at = fb_order_begin(order, least.epoch);
    if (least.position)
        *at = (struct fb_cursor){ least.epoch, least.position, least.world, least.nodes };
    if (repeated)
        *repeated = again;
    return FOREBAY_OK;
}

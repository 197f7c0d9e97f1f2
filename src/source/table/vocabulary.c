#include "source/table/vocabulary.h"

#include <stdatomic.h>
#include <string.h>

#include "base/mix.h"
#include "base/size.h"
#include "memory/block.h"

#define FIRST_SLOTS 256
#define PIECE_BYTES ((uint64_t)16 * 1024)
#define WORDS_MAX INT32_MAX

/* A word lies in a piece, which never moves; `bytes`, `code`, `hash` are written before `word` is
 * published. */
struct slot {
    _Atomic(const char *) word;
    uint64_t hash;
    uint32_t bytes;
    int32_t code;
};

struct slots {
    struct slots *older;
    uint64_t count; /* a power of two */
    struct slot slot[];
};

struct piece {
    struct piece *older;
    uint64_t room, used;
    char text[];
};

struct word {
    const char *text;
    uint64_t bytes;
};

struct fb_vocabulary {
    struct fb_budget *budget;
    uint64_t limit, used; /* bytes */
    _Atomic(struct slots *) slots;
    struct piece *pieces;
    uint32_t count;
    struct word *words; /* by code; only the thread that adds looks at them */
    uint64_t words_room;
};

static uint64_t hash_of(const char *word, uint64_t bytes)
{
    uint64_t hash = bytes;

    for (; bytes >= 8; bytes -= 8, word += 8) {
        uint64_t part;

        memcpy(&part, word, 8);
        hash = fb_mix2(hash, part);
    }
    for (uint64_t i = 0, part = 0; bytes && i <= bytes; i++) {
        if (i == bytes)
            return fb_mix2(hash, part);
        part = part << 8 | (unsigned char)word[i];
    }
    return hash;
}

/* The slot that has the word, or the free one it would go to. */
static struct slot *find_slot(struct slots *slots, const char *word, uint64_t bytes, uint64_t hash)
{
    for (uint64_t at = hash;; at++) {
        struct slot *slot = &slots->slot[at & (slots->count - 1)];
        const char *text = atomic_load_explicit(&slot->word, memory_order_acquire);

        if (!text || (slot->hash == hash && slot->bytes == bytes && !memcmp(text, word, bytes)))
            return slot;
    }
}

static void *take(struct fb_vocabulary *vocabulary, uint64_t count, uint64_t size,
                  forebay_error *error)
{
    uint64_t bytes = count * size;
    void *memory;

    if (bytes > vocabulary->limit - vocabulary->used) {
        char limit[32];

        fb_fail(error, FOREBAY_OVER_BUDGET,
                "%u different words do not fit in the %s that one "
                "column's vocabulary may take (a 16th of the budget): give it another type in "
                "source.types, or raise memory.budget",
                vocabulary->count, fb_size_text(vocabulary->limit, limit));
        return NULL;
    }
    memory = fb_block_new(vocabulary->budget, FB_STAGE_INDEX, count, size, "a vocabulary", error);
    if (memory)
        vocabulary->used += bytes;
    return memory;
}

static void give(struct fb_vocabulary *vocabulary, void *memory, uint64_t count, uint64_t size)
{
    if (memory)
        vocabulary->used -= count * size;
    fb_block_free(vocabulary->budget, FB_STAGE_INDEX, memory, count, size);
}

static uint64_t slots_bytes(uint64_t count)
{
    return sizeof(struct slots) + count * sizeof(struct slot);
}

static int grow_slots(struct fb_vocabulary *vocabulary, uint64_t count, forebay_error *error)
{
    struct slots *old = atomic_load(&vocabulary->slots);
    struct slots *fresh = take(vocabulary, slots_bytes(count), 1, error);

    if (!fresh)
        return error ? (int)error->status : FOREBAY_OVER_BUDGET;
    fresh->older = old;
    fresh->count = count;
    for (uint64_t i = 0; old && i < old->count; i++) {
        const struct slot *from = &old->slot[i];
        const char *word = atomic_load(&from->word);
        struct slot *to;

        if (!word)
            continue;
        to = find_slot(fresh, word, from->bytes, from->hash);
        to->hash = from->hash;
        to->bytes = from->bytes;
        to->code = from->code;
        atomic_store(&to->word, word);
    }
    atomic_store(&vocabulary->slots, fresh);
    return FOREBAY_OK;
}

int fb_vocabulary_new(struct fb_vocabulary **out, uint64_t limit, struct fb_budget *budget,
                      forebay_error *error)
{
    struct fb_vocabulary *vocabulary =
        fb_block_new(budget, FB_STAGE_INDEX, 1, sizeof(*vocabulary), "a vocabulary", error);
    int status;

    if (!vocabulary)
        return error ? (int)error->status : FOREBAY_OVER_BUDGET;
    vocabulary->budget = budget;
    vocabulary->limit = limit;
    status = grow_slots(vocabulary, FIRST_SLOTS, error);
    if (status) {
        fb_vocabulary_free(vocabulary);
        return status;
    }
    *out = vocabulary;
    return FOREBAY_OK;
}

void fb_vocabulary_free(struct fb_vocabulary *vocabulary)
{
    struct slots *slots;

    if (!vocabulary)
        return;
    slots = atomic_load(&vocabulary->slots);
    while (slots) {
        struct slots *older = slots->older;

        give(vocabulary, slots, slots_bytes(slots->count), 1);
        slots = older;
    }
    while (vocabulary->pieces) {
        struct piece *older = vocabulary->pieces->older;

        give(vocabulary, vocabulary->pieces, sizeof(struct piece) + vocabulary->pieces->room, 1);
        vocabulary->pieces = older;
    }
    give(vocabulary, vocabulary->words, vocabulary->words_room, sizeof(*vocabulary->words));
    fb_block_free(vocabulary->budget, FB_STAGE_INDEX, vocabulary, 1, sizeof(*vocabulary));
}

int32_t fb_vocabulary_find(const struct fb_vocabulary *vocabulary, const char *word, uint64_t bytes)
{
    struct slots *slots = atomic_load_explicit(&vocabulary->slots, memory_order_acquire);
    const struct slot *slot = find_slot(slots, word, bytes, hash_of(word, bytes));

    return atomic_load_explicit(&slot->word, memory_order_acquire) ? slot->code : -1;
}

static char *keep_text(struct fb_vocabulary *vocabulary, const char *word, uint64_t bytes,
                       forebay_error *error)
{
    struct piece *piece = vocabulary->pieces;
    char *text;

    if (!piece || piece->room - piece->used < bytes + 1) {
        uint64_t room = fb_max(PIECE_BYTES, bytes + 1);

        piece = take(vocabulary, sizeof(*piece) + room, 1, error);
        if (!piece)
            return NULL;
        piece->older = vocabulary->pieces;
        piece->room = room;
        vocabulary->pieces = piece;
    }
    text = piece->text + piece->used;
    memcpy(text, word, bytes);
    piece->used += bytes + 1; /* an empty word has a place, too */
    return text;
}

static int make_room(struct fb_vocabulary *vocabulary, forebay_error *error)
{
    uint64_t slots = atomic_load(&vocabulary->slots)->count;
    uint64_t room = vocabulary->words_room;

    if (vocabulary->count == WORDS_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "there are more than %d different words",
                       WORDS_MAX);
    if (vocabulary->count == room) {
        uint64_t more = room ? 2 * room : FIRST_SLOTS / 2;
        struct word *words = take(vocabulary, more, sizeof(*words), error);

        if (!words)
            return error ? (int)error->status : FOREBAY_OVER_BUDGET;
        if (room)
            memcpy(words, vocabulary->words, room * sizeof(*words));
        give(vocabulary, vocabulary->words, room, sizeof(*words));
        vocabulary->words = words;
        vocabulary->words_room = more;
    }
    if (2 * (uint64_t)vocabulary->count >= slots)
        return grow_slots(vocabulary, 2 * slots, error);
    return FOREBAY_OK;
}

int fb_vocabulary_add(struct fb_vocabulary *vocabulary, const char *word, uint64_t bytes,
                      int32_t *code, forebay_error *error)
{
    uint64_t hash = hash_of(word, bytes);
    int32_t found = fb_vocabulary_find(vocabulary, word, bytes);
    struct slot *slot;
    char *text;
    int status;

    if (found >= 0) {
        *code = found;
        return FOREBAY_OK;
    }
    if (bytes > UINT32_MAX)
        return fb_fail(error, FOREBAY_BAD_DATA, "a word is longer than 4 GiB");
    status = make_room(vocabulary, error);
    if (status)
        return status;
    text = keep_text(vocabulary, word, bytes, error);
    if (!text)
        return error ? (int)error->status : FOREBAY_OVER_BUDGET;
    slot = find_slot(atomic_load(&vocabulary->slots), word, bytes, hash);
    slot->hash = hash;
    slot->bytes = (uint32_t)bytes;
    slot->code = *code = (int32_t)vocabulary->count;
    vocabulary->words[vocabulary->count++] = (struct word){ text, bytes };
    atomic_store_explicit(&slot->word, text, memory_order_release);
    return FOREBAY_OK;
}

uint32_t fb_vocabulary_count(const struct fb_vocabulary *vocabulary)
{
    return vocabulary->count;
}

const char *fb_vocabulary_word(const struct fb_vocabulary *vocabulary, uint32_t code,
                               uint64_t *bytes)
{
    *bytes = vocabulary->words[code].bytes;
    return vocabulary->words[code].text;
}

/*
 * vocabulary.h -- the words of a category column; a word's code is the number of words before it.
 *
 * One thread adds (in the order of the file, so that codes are the same in every run), any number
 * look up meanwhile, without a lock: entries are published by their text, tables that grew out of
 * use are kept until the end.
 */
#ifndef FB_SOURCE_VOCABULARY_H
#define FB_SOURCE_VOCABULARY_H
#include "base/error.h"
#include "memory/budget.h"

struct fb_vocabulary;

/* At most `limit` bytes of memory. */
int fb_vocabulary_new(struct fb_vocabulary **out, uint64_t limit, struct fb_budget *budget,
                      forebay_error *error);
void fb_vocabulary_free(struct fb_vocabulary *vocabulary);

/* The code of a word, -1 if it is not (or not yet) known. Any thread. */
int32_t fb_vocabulary_find(const struct fb_vocabulary *vocabulary, const char *word,
                           uint64_t bytes);
/* The same; a new word is added. OVER_BUDGET if it has no room. */
int fb_vocabulary_add(struct fb_vocabulary *vocabulary, const char *word, uint64_t bytes,
                      int32_t *code, forebay_error *error);
uint32_t fb_vocabulary_count(const struct fb_vocabulary *vocabulary);
/* The words, in the order of their codes. */
const char *fb_vocabulary_word(const struct fb_vocabulary *vocabulary, uint32_t code,
                               uint64_t *bytes);
#endif

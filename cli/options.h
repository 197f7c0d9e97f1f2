/* options.h -- the command line by a table: --name value, --name=value, flags, and the rest. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H
#include "forebay.h"

struct texts {
    size_t count;
    const char **values; /* an array of the parser's, for the caller to free */
};

enum option_type {
    OPTION_FLAG,   /* bool */
    OPTION_COUNT,  /* uint64_t, from 1 */
    OPTION_NUMBER, /* uint64_t, from 0 */
    OPTION_SIZE,   /* uint64_t, "15MB" */
    OPTION_TEXTS,  /* struct texts: may be given many times */
    OPTION_ALONE,  /* const char *: an argument without a name; in the order of the table */
    OPTION_REST,   /* struct texts: all further ones without a name; the last row of these */
};

struct option {
    const char *name; /* "--epochs", or for ALONE how the usage calls it */
    enum option_type type;
    void *to;
    bool required; /* ALONE and REST only */
};

/* Read argv[1] ... by the table of `count` options; what is not given is left as it is. */
int options_parse(int argc, char **argv, const struct option *options, size_t count,
                  forebay_error *error);
/* Is `name` among the arguments before "--"? For --json and --help, which count before all else. */
bool options_has(int argc, char **argv, const char *name);

/* The nearest of `count` words, `stride` bytes from one to the next; NULL if none is near. */
const char *nearest_word(const char *word, const char *const *first, size_t stride, size_t count);
#endif

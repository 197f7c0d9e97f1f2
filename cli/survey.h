/*
 * survey.h -- what `forebay inspect` finds out about a source: sizes of its units, what is broken,
 * and with `check` whether every unit can really be loaded.
 */
#ifndef CLI_SURVEY_H
#define CLI_SURVEY_H
#include "source/source.h"

#define SURVEY_BROKEN_KEPT 1000

struct survey {
    struct fb_budget *budget;
    struct fb_source *source;
    uint64_t bytes;                    /* of all units whose size is known */
    uint64_t known, unknown, broken;   /* units */
    uint64_t least, median, most;      /* bytes of a unit; valid if known > 0 */
    bool checked;                      /* every unit was loaded */
    uint64_t kept;                     /* of `failures`: min(broken, SURVEY_BROKEN_KEPT) */
    struct survey_failure {
        uint64_t unit;
        char place[320];
        char reason[320];
    } *failures;
};

/* Look at all units of an open source (borrowed, as is the budget). */
int survey_take(struct survey *survey, struct fb_source *source, struct fb_budget *budget,
                bool check, const struct fb_log *log, forebay_error *error);
void survey_release(struct survey *survey);

/* "[8, ?, 4]" of a field: ? is what may vary. With `extent`: of one item. */
void survey_shape(const struct fb_field *field, const struct fb_extent *extent, char *text,
                  size_t size);
#endif

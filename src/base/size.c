#include "base/size.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const struct {
    const char *name;
    uint64_t factor;
} units[] = {
    { "", 1 },
    { "B", 1 },
    { "KB", 1000 },
    { "MB", 1000 * 1000 },
    { "GB", 1000 * 1000 * 1000 },
    { "TB", (uint64_t)1000 * 1000 * 1000 * 1000 },
    { "KiB", FB_KIB },
    { "MiB", FB_MIB },
    { "GiB", FB_GIB },
    { "TiB", 1024 * FB_GIB },
};

/* The digits at *text; false if there are none or they do not fit. */
static bool digits_parse(const char **text, uint64_t *value)
{
    const char *from = *text;

    *value = 0;
    for (; isdigit((unsigned char)**text); ++*text)
        if (!fb_mul(*value, 10, value) || !fb_add(*value, (uint64_t)(**text - '0'), value))
            return false;
    return *text > from;
}

/* ".5" at *text as a share of one. More digits than a double holds do no harm. */
static bool fraction_parse(const char **text, double *share)
{
    double step = 0.1;
    const char *from;

    *share = 0;
    if (**text != '.')
        return true;
    from = ++*text;
    for (; isdigit((unsigned char)**text); ++*text, step /= 10)
        *share += step * (**text - '0');
    return *text > from;
}

/* By hand: strtod takes "inf", "nan" and hexadecimal, which are no sizes, rounds whole bytes, and
 * wants a comma if the program around us has set such a locale. */
bool fb_size_parse(const char *text, uint64_t *bytes)
{
    uint64_t whole, value;
    double share;

    if (!digits_parse(&text, &whole) || !fraction_parse(&text, &share))
        return false;
    while (*text == ' ')
        text++;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        /* "mb" is read as MB and "gib" as GiB: there is nothing else it could mean. */
        if (strcasecmp(text, units[i].name) != 0)
            continue;
        if (!fb_mul(whole, units[i].factor, &value) ||
            !fb_add(value, (uint64_t)(share * (double)units[i].factor + 0.5), &value) ||
            value > INT64_MAX)
            return false;
        *bytes = value;
        return true;
    }
    return false;
}

char *fb_size_text(uint64_t bytes, char text[32])
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    unsigned unit = 0;
    uint64_t tenths;

    /* What would be written as 1024 of a unit is 1.0 of the next. */
    for (; value >= 1023.5; unit++)
        value /= 1024;
    tenths = (uint64_t)(value * 10 + 0.5);
    if (unit && tenths < 1000) /* not "%.1f": the locale may write a comma */
        snprintf(text, 32, "%u.%u %s", (unsigned)(tenths / 10), (unsigned)(tenths % 10),
                 names[unit]);
    else
        snprintf(text, 32, "%u %s", (unsigned)(value + 0.5), names[unit]);
    return text;
}

#include "base/size.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <strings.h>

static const struct {
    const char *name;
    double factor;
} units[] = {
    { "", 1 },       { "B", 1 },           { "KB", 1e3 },         { "MB", 1e6 },
    { "GB", 1e9 },   { "TB", 1e12 },       { "KiB", 1024.0 },     { "MiB", 1048576.0 },
    { "GiB", 0x1p30 }, { "TiB", 0x1p40 },
};

/* "12", "1.5": not strtod, which goes by the program's locale and takes "inf", "nan" and "0x". */
static const char *parse_decimal(const char *text, double *number)
{
    double place = 1;

    *number = 0;
    for (; isdigit((unsigned char)*text); text++)
        *number = *number * 10 + (*text - '0');
    if (*text == '.')
        for (text++; isdigit((unsigned char)*text); text++)
            *number += (place /= 10) * (*text - '0');
    return text;
}

bool fb_size_parse(const char *text, uint64_t *bytes)
{
    double number;

    if (!isdigit((unsigned char)text[0]))
        return false;
    text = parse_decimal(text, &number);
    while (*text == ' ')
        text++;
    for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
        double value = number * units[i].factor;

        /* "mb" is read as MB and "gib" as GiB: there is nothing else it could mean. */
        if (strcasecmp(text, units[i].name) != 0)
            continue;
        if (!isfinite(value) || value >= 0x1p63)
            return false;
        *bytes = (uint64_t)value;
        return true;
    }
    return false;
}

char *fb_size_text(uint64_t bytes, char text[32])
{
    static const char *const names[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    double value = (double)bytes;
    size_t unit = 0;

    while (value >= 1024 && unit + 1 < sizeof(names) / sizeof(names[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(text, 32, unit && value < 100 ? "%.1f %s" : "%.0f %s", value, names[unit]);
    return text;
}

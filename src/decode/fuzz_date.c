/* fuzz_date.c -- any bytes as a date: what is taken for one is written back and read as the same. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "decode/date.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(int64_t ns)
{
    int64_t seconds = ns / 1000000000 - (ns % 1000000000 < 0), again = 0;
    time_t time = (time_t)seconds;
    struct tm parts;
    char text[64];

    gmtime_r(&time, &parts);
    snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%09dZ", parts.tm_year + 1900,
             parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
             (int)(ns - seconds * 1000000000));
    if (fb_date_ns(text, text + strlen(text), &again) != FB_NUMBER_OK || again != ns)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    int64_t days, ns;

    if (!text)
        return 0;
    memcpy(text, data, size);
    if (fb_date_ns(text, text + size, &ns) == FB_NUMBER_OK)
        check_again(ns);
    if (fb_date_days(text, text + size, &days) == FB_NUMBER_OK &&
        (days < -719162 || days > 2932896))
        abort();
    free(text);
    return 0;
}

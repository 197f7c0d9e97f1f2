/* fuzz_recorder.c -- any bytes as a log. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "monitor/recorder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool count(void *data, json_t *object)
{
    if (!json_is_object(object))
        abort();
    ++*(unsigned *)data;
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    unsigned objects = 0;
    uint64_t bad;
    FILE *file;

    snprintf(path, sizeof(path), "/tmp/fuzz_recorder.%d", (int)getpid());
    file = fopen(path, "w");
    if (!file)
        return 0;
    if (size)
        fwrite(data, 1, size, file);
    fclose(file);
    if (fb_recorder_read(path, count, &objects, &bad, NULL) != FOREBAY_OK ||
        objects + bad > size + 1)
        abort();
    unlink(path);
    return 0;
}

/* fuzz_replay.c -- any text as a line of a recorded log. */
#include <stdint.h>
#include <stdlib.h>

#include "governor/replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_decision made;

    if (fb_replay_line((const char *)data, size, &made) != FB_REPLAY_OTHER &&
        (made.action >= FB_ACTION_COUNT || !made.reason))
        abort();
    return 0;
}

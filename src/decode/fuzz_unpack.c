/* Any bytes as a gzip or zstd file: nothing is read or written outside, and it ends. */
#include <string.h>

#include "base/size.h"
#include "decode/unpack.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_memory(void *data, void *into, uint64_t bytes, uint64_t offset, forebay_error *e)
{
    const struct fb_input *input = data;

    (void)e;
    if (offset + bytes > input->bytes)
        __builtin_trap(); /* more than there is was asked for */
    memcpy(into, (const uint8_t *)input->data + offset, bytes);
    return FOREBAY_OK;
}

/* At most 4 MiB of what comes out, in pieces of many sizes. */
static void unpack_all(struct fb_unpack *unpack, unsigned seed)
{
    static char out[1 << 16];
    uint64_t made = 0, wanted = 0;
    forebay_error error;

    for (uint64_t done = 0; done < 4 * FB_MIB; done += made) {
        wanted = 1 + (seed = seed * 1103515245 + 12345) % sizeof(out);
        if (fb_unpack_read(unpack, out, wanted, &made, &error))
            break;
        if (made > wanted || fb_unpack_window(unpack) > FB_MIB)
            __builtin_trap();
        if (made < wanted)
            break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fb_input memory = { NULL, (void *)(uintptr_t)data, size };
    struct fb_input input = { read_memory, &memory, size };
    struct fb_budget *budget;
    struct fb_unpack *unpack;
    enum fb_packing packing;
    forebay_error error;

    if (fb_packing_find(&input, &packing, &error) || fb_budget_new(&budget, 8 * FB_MIB, &error))
        return 0;
    if (fb_unpack_new(&unpack, FB_MIB, budget, FB_STAGE_SCRATCH, &error))
        __builtin_trap();
    for (unsigned i = 0; i < 2; i++)
        if (fb_unpack_begin(unpack, packing, &input, &error) == FOREBAY_OK)
            unpack_all(unpack, size ? data[size / 2] + i : i);
    fb_unpack_free(unpack);
    fb_budget_free(budget);
    return 0;
}

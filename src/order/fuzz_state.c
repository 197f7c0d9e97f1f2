/* fuzz_state.c -- any text as the state of an order: refused in words, or a cursor that works. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "order/order.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct fb_order *make(int sticky)
{
    struct fb_order_options options = { .samples = 1001,
                                        .seed = 1,
                                        .shuffle = true,
                                        .sticky = sticky,
                                        .ranks = { 1, 4, 2, 0, 2, "given" } };
    struct fb_budget *budget = NULL;
    struct fb_order *order = NULL;

    if (fb_budget_new(&budget, FB_MIB, NULL) || fb_order_open(&order, &options, budget, NULL, NULL))
        abort();
    return order;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct fb_order *orders[2];
    struct fb_cursor at;
    uint64_t repeated, count;
    forebay_error error;
    char *text;

    if (!orders[0]) {
        orders[0] = make(FB_STICKY_NONE);
        orders[1] = make(FB_STICKY_NODE);
    }
    text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    for (int i = 0; i < 2; i++) {
        /* Twice the same: ranks in step. */
        const char *texts[] = { text, text };

        if (fb_order_load(orders[i], texts, 2, &at, &repeated, &error)) {
            assert(error.status == FOREBAY_BAD_STATE && error.message[0]);
            continue;
        }
        assert(repeated == 0 && at.start < fb_order_length(orders[i]));
        count = fb_order_count(orders[i], at);
        if (count) {
            assert(fb_order_sample(orders[i], at, 0) < 1001);
            assert(fb_order_sample(orders[i], at, count - 1) < 1001);
        }
    }
    free(text);
    return 0;
}

/* fuzz_control_socket.c -- any bytes as a request to a running loader. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "monitor/control_socket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int set(void *data, const char *key, const char *value, forebay_set_result *result,
               forebay_error *error)
{
    (void)data;
    if (strlen(key) + strlen(value) >= FB_CONTROL_REQUEST_BYTES)
        abort();
    if (value[0] == '9')
        return fb_fail(error, FOREBAY_OVER_BUDGET, "%s: too much", key);
    if (result)
        *result = (forebay_set_result){ .old_value = "1", .new_value = "2" };
    return FOREBAY_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char reply[FB_CONTROL_REPLY_BYTES];
    size_t length = fb_control_answer((const char *)data, size, set, NULL, reply);

    if (length < 3 || length >= sizeof(reply) || reply[length - 1] != '\n' || reply[0] != '{')
        abort();
    return 0;
}

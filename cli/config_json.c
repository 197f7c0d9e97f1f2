#include "config_json.h"

#include <stdbool.h>

#include "config/schema.h"

enum { LIVE = 1, LATER = 2 }; /* the flags of the table, for this file */

static const struct {
    const char *type, *key, *fallback;
    int flags;
    const char *choices, *help;
} keys[] = {
#define X(type, member, key, fallback, flags, choices, help) \
    { #type, key, fallback, flags, choices, help },
    FB_CONFIG_KEYS(X)
#undef X
};

json_t *config_json(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:s}", "key", keys[i].key, "type",
                            keys[i].type, "default", keys[i].fallback, "choices", keys[i].choices,
                            "live", (keys[i].flags & LIVE) != 0, "built",
                            (keys[i].flags & LATER) == 0, "help", keys[i].help));
    return json_pack("{s:o}", "keys", list);
}

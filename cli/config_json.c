#include "config_json.h"

#include <stdbool.h>

#include "config/schema.h"

/* The flags of the table, for this file. */
enum { LATER = 2, PERCENT = 0 };
#define FROM(minimum) 0
#define BETWEEN(minimum, maximum) 0
#define W(enumerator, word) "|" word

static const struct {
    const char *type, *key, *fallback;
    int flags;
    bool is_live;
    const char *choices, *texts[2];
} keys[] = {
#define ROW(type, member, key, fallback, flags, choices, ...) \
    { #type, key, fallback, flags, false, choices, { __VA_ARGS__ } },
#define LIVE_ROW(type, member, key, fallback, flags, choices, ...) \
    { #type, key, fallback, flags, true, choices, { __VA_ARGS__ } },
    FB_CONFIG_KEYS(ROW, LIVE_ROW)
};

json_t *config_json(void)
{
    json_t *list = json_array();

    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:s, s:s, s:b, s:b, s:s}", "key", keys[i].key, "type",
                            keys[i].type, "default", keys[i].fallback, "choices",
                            keys[i].choices + (keys[i].choices[0] == '|'),
                            "live", keys[i].is_live, "built",
                            (keys[i].flags & LATER) == 0, "help", keys[i].texts[0]));
    return json_pack("{s:o}", "keys", list);
}

#include "governor/replay.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* 2^64 - 1 stands for "unknown" and does not fit in JSON's integers: null. */
static json_t *write_N(uint64_t value)
{
    return value > INT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *write_T(bool value)
{
    return json_boolean(value);
}

static json_t *write_R(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static bool read_N(const json_t *json, uint64_t *value)
{
    if (json_is_null(json)) {
        *value = UINT64_MAX;
        return true;
    }
    *value = (uint64_t)json_integer_value(json);
    return json_is_integer(json) && json_integer_value(json) >= 0;
}

static bool read_T(const json_t *json, bool *value)
{
    *value = json_is_true(json);
    return json_is_boolean(json);
}

static bool read_R(const json_t *json, double *value)
{
    *value = json_is_null(json) ? (double)NAN : json_number_value(json);
    return json_is_null(json) || json_is_number(json);
}

static json_t *view_json(const struct fb_view *view)
{
    json_t *json = json_object();

#define FB_X(kind, name) json_object_set_new(json, #name, write_##kind(view->name));
    FB_VIEW_MAP(FB_X)
#undef FB_X
    return json;
}

static json_t *past_json(const struct fb_past *past)
{
    json_t *json = json_object();

#define FB_X(kind, name) json_object_set_new(json, #name, write_##kind(past->name));
    FB_PAST_MAP(FB_X)
#undef FB_X
    return json;
}

static bool view_read(const json_t *json, struct fb_view *view)
{
    bool good = json_is_object(json);

#define FB_X(kind, name) good = good && read_##kind(json_object_get(json, #name), &view->name);
    FB_VIEW_MAP(FB_X)
#undef FB_X
    return good;
}

static bool past_read(const json_t *json, struct fb_past *past)
{
    bool good = json_is_object(json);

#define FB_X(kind, name) good = good && read_##kind(json_object_get(json, #name), &past->name);
    FB_PAST_MAP(FB_X)
#undef FB_X
    return good && past->action < FB_ACTION_COUNT && past->trial < FB_ACTION_COUNT;
}

bool fb_replay_write(const struct fb_view *view, const struct fb_past *past,
                     const struct fb_decision *decision, char line[FB_REPLAY_LINE_BYTES])
{
    json_t *json = json_pack("{s:s, s:s, s:o, s:o, s:s, s:s, s:o, s:o}", "kind", "decision",
                             "action", fb_action_names[decision->action], "from",
                             write_N(decision->from), "to", write_N(decision->to), "reason",
                             decision->reason, "figures", decision->figures, "view",
                             view_json(view), "past", past_json(past));
    size_t length = json ? json_dumpb(json, line, FB_REPLAY_LINE_BYTES - 1, JSON_COMPACT) : 0;

    json_decref(json);
    if (length == 0 || length >= FB_REPLAY_LINE_BYTES)
        return false;
    line[length] = '\0';
    return true;
}

static bool is_same(const json_t *json, const struct fb_decision *made)
{
    const char *action = json_string_value(json_object_get(json, "action"));
    const char *reason = json_string_value(json_object_get(json, "reason"));
    uint64_t from, to;

    return action && !strcmp(action, fb_action_names[made->action]) && reason &&
           !strcmp(reason, made->reason) && read_N(json_object_get(json, "from"), &from) &&
           read_N(json_object_get(json, "to"), &to) && from == made->from && to == made->to;
}

enum fb_replay_result fb_replay_line(const char *line, size_t length, struct fb_decision *made)
{
    json_t *json = length < FB_REPLAY_LINE_BYTES ? json_loadb(line, length, 0, NULL) : NULL;
    const char *kind = json_string_value(json_object_get(json, "kind"));
    enum fb_replay_result result = FB_REPLAY_OTHER;
    struct fb_decision again;
    struct fb_view view;
    struct fb_past past;

    if (kind && !strcmp(kind, "decision") && view_read(json_object_get(json, "view"), &view) &&
        past_read(json_object_get(json, "past"), &past)) {
        again = fb_governor_decide(&view, &past);
        result = is_same(json, &again) ? FB_REPLAY_SAME : FB_REPLAY_DIFFERS;
        if (made)
            *made = again;
    }
    json_decref(json);
    return result;
}

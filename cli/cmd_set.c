/* cmd_set.c -- `forebay set PID[:NAME] key=value...`: change a loader while it runs. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/size.h"
#include "command.h"
#include "loaders.h"
#include "monitor/control_socket.h"
#include "options.h"
#include "output.h"

static const char help[] =
    "Changes settings of a running loader of this user, within one batch and without changing the\n"
    "batches, and tells the values before and after. PID is the process, NAME the loader's name if\n"
    "the process has several; forebay top lists both.\n"
    "\n"
    "  workers=N        threads that read and decode\n"
    "  prefetch=N       batches in flight\n"
    "  memory.budget=S  the ceiling, e.g. 8GiB; not below the loader's floor\n"
    "  cpu.share=N      how many workers may run at once\n"
    "\n"
    "What is set by hand the governor leaves alone from then on; the value auto (workers, prefetch,\n"
    "cpu.share) gives it back to the governor. Either all settings are good, or none is made.\n"
    "\n"
    "Options:\n"
    "  --json  print the result as one JSON object: loader, results [{key, old, new, also}],\n"
    "          held_batches, held_bytes\n"
    "\n"
    "Exit code: 0 done, 1 failed, 2 bad use.\n"
    "\n"
    "Examples:\n"
    "  forebay set 4711 workers=4 prefetch=2\n"
    "  forebay set 4711:train memory.budget=8GiB\n";

/* "set a=b c=d" of what stands behind the loader's name. */
static int request_make(const struct texts *pairs, char request[FB_CONTROL_REQUEST_BYTES],
                        forebay_error *error)
{
    size_t used = (size_t)snprintf(request, FB_CONTROL_REQUEST_BYTES, "set");

    for (size_t i = 0; i < pairs->count; i++) {
        int length = snprintf(request + used, FB_CONTROL_REQUEST_BYTES - used, " %s",
                              pairs->values[i]);

        if (strpbrk(pairs->values[i], " \t\n") || !strchr(pairs->values[i], '='))
            return fb_fail(error, FOREBAY_BAD_USE, "'%s': expected key=value", pairs->values[i]);
        if (length < 0 || used + (size_t)length >= FB_CONTROL_REQUEST_BYTES - 1)
            return fb_fail(error, FOREBAY_BAD_USE, "that is too long to be set at once");
        used += (size_t)length;
    }
    return pairs->count ? FOREBAY_OK
                        : fb_fail(error, FOREBAY_BAD_USE, "key=value is missing");
}

/* What the loader answered, if it is an error: as ours. */
static int reply_error(const json_t *reply, forebay_error *error)
{
    const json_t *object = json_object_get(reply, "error");
    const char *status = json_string_value(json_object_get(object, "status"));
    const char *message = json_string_value(json_object_get(object, "message"));
    const char *place = json_string_value(json_object_get(object, "place"));
    int number = FOREBAY_IO;

    if (json_is_array(json_object_get(reply, "results")))
        return FOREBAY_OK;
#define FOREBAY_X(name, value, text)             \
    if (status && strcmp(status, #name) == 0) \
        number = value;
    FOREBAY_STATUS_MAP(FOREBAY_X)
#undef FOREBAY_X
    fb_fail(error, (forebay_status)(number < 0 ? number : FOREBAY_IO), "%s",
            message ? message : "the loader's answer makes no sense");
    if (place && place[0])
        fb_error_place(error, "%s", place);
    return number < 0 ? number : FOREBAY_IO;
}

/* Bytes as a person writes them; all else as the loader says it. */
static const char *value_text(const json_t *result, const char *which, char text[32])
{
    const char *key = json_string_value(json_object_get(result, "key"));
    const char *value = json_string_value(json_object_get(result, which));
    char *end;
    unsigned long long bytes;

    if (!key || !value || strncmp(key, "memory.", 7) != 0)
        return value ? value : "n/a";
    bytes = strtoull(value, &end, 10);
    return end == value || *end ? value : fb_size_text(bytes, text);
}

static int result_tell(const struct fb_snapshot *page, json_t *reply, bool json)
{
    const json_t *results = json_object_get(reply, "results"), *result;
    char label[128], old[32], new[32];
    size_t i;

    loader_label(page, label, sizeof(label));
    if (json) {
        json_object_set_new(reply, "loader", output_text(label));
        return output_json(json_incref(reply));
    }
    json_array_foreach(results, i, result) {
        const char *also = json_string_value(json_object_get(result, "also"));

        printf("%s %s: %s -> %s%s%s\n", label, json_string_value(json_object_get(result, "key")),
               value_text(result, "old", old), value_text(result, "new", new),
               also && also[0] ? "; also " : "", also ? also : "");
    }
    return EXIT_DONE;
}

static int set_one(const char *which, const char *request, bool json, forebay_error *error,
                   int *code)
{
    char reply[FB_CONTROL_REPLY_BYTES];
    struct loaders loaders;
    json_t *answer = NULL;
    int status = loaders_find(&loaders, which, error);

    if (status)
        return status;
    if (loaders.count > 1)
        status = fb_fail(error, FOREBAY_BAD_USE, "process %s has %u loaders; name one as PID:NAME",
                         which, loaders.count);
    if (!status)
        status = fb_control_ask(&loaders.pages[0], request, reply, error);
    if (!status) {
        answer = json_loads(reply, 0, NULL);
        status = reply_error(answer, error);
    }
    if (!status)
        *code = result_tell(&loaders.pages[0], answer, json);
    json_decref(answer);
    loaders_release(&loaders);
    return status;
}

static int run(int argc, char **argv)
{
    bool json = options_has(argc, argv, "--json");
    char request[FB_CONTROL_REQUEST_BYTES];
    const char *which = NULL;
    struct texts pairs = { 0 };
    const struct option table[] = {
        { "PID[:NAME]", OPTION_ALONE, &which, true },
        { "key=value", OPTION_REST, &pairs, true },
        { "--json", OPTION_FLAG, &json, false },
    };
    forebay_error error;
    int status = options_parse(argc, argv, table, sizeof(table) / sizeof(table[0]), &error);
    int code = EXIT_DONE;

    if (!status)
        status = request_make(&pairs, request, &error);
    if (!status)
        status = set_one(which, request, json, &error, &code);
    if (status == FOREBAY_BAD_USE)
        code = output_bad_use("set", json, &error);
    else if (status)
        code = output_failure("set", json, &error);
    free(pairs.values);
    return code;
}

const struct command command_set = {
    .name = "set",
    .usage = "PID[:NAME] key=value... [--json]",
    .summary = "change a running loader",
    .help = help,
    .run = run,
};

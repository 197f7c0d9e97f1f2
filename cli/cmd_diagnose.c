/* cmd_diagnose.c -- `forebay diagnose`: what this machine has, how fast it copies, and whether a
 * device keeps what the manual promises. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/size.h"
#include "command.h"
#include "device/device.h"
#include "memory/host.h"
#include "monitor/sampler.h"
#include "options.h"
#include "output.h"
#include "self_test.h"
#include "speed.h"

#define COPY_BYTES (64 * FB_MIB)
#define DEVICES_SHOWN 16 /* of each kind */

static const char help[] =
    "Shows the processors and the memory this process may use; how fast it copies in memory, reads\n"
    "files and decodes pictures (40 MB are written to $TMPDIR or /tmp for a moment); what NVIDIA's\n"
    "management library says of each GPU; and every device batches could be handed out on, with its\n"
    "driver and the speed of copies to it.\n"
    "\n"
    "Options:\n"
    "  --device KIND  only this device, e.g. cuda:0 or opencl:0; may be given many times\n"
    "  --self-test    try out on each device what docs/device.md says of it: copies, events,\n"
    "                 kernels, and a loader that must deliver what it delivers on the host. Takes\n"
    "                 seconds and writes 7 MB to /tmp for a moment\n"
    "  --json         print the result as one JSON object on stdout\n"
    "\n"
    "Exit code: 0 done, 1 a device that was named is missing or a test failed, 2 bad use.\n"
    "\n"
    "Examples:\n"
    "  forebay diagnose\n"
    "  forebay diagnose --device cuda:0 --self-test\n";

static void log_line(void *data, int level, const char *line)
{
    (void)data;
    fprintf(stderr, "%s%s\n", level ? "warning: " : "", line);
}
static const struct fb_log to_stderr = { .log = log_line };

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *whole(uint64_t value)
{
    return value == UINT64_MAX ? json_null() : json_integer((json_int_t)value);
}

/* Bytes per second, read and written once each; the best of four. */
static double memcpy_rate(void)
{
    char *from = malloc(COPY_BYTES), *to = malloc(COPY_BYTES);
    uint64_t best = UINT64_MAX;

    for (unsigned i = 0; i < 5 && from && to; i++) {
        uint64_t began;

        memset(from, (int)i, COPY_BYTES);
        began = fb_now_ns();
        memcpy(to, from, COPY_BYTES);
        if (i && fb_now_ns() - began < best && to[COPY_BYTES - 1] == (char)i)
            best = fb_now_ns() - began;
    }
    free(from);
    free(to);
    return best == UINT64_MAX ? NAN : (double)COPY_BYTES / (double)best * 1e9;
}

static json_t *host_json(void)
{
    struct fb_host_memory memory;

    fb_host_memory_read(&memory, "");
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "cpus", (int)fb_host_cpus(), "total_bytes",
                     whole(memory.total_bytes), "available_bytes", whole(memory.available_bytes),
                     "limit_bytes", whole(memory.cgroup_limit_bytes), "left_bytes",
                     whole(memory.left_bytes), "memcpy_bytes_per_s", real(memcpy_rate()));
}

/* What the management library knows of the GPUs; null without it. */
static json_t *gpus_json(void)
{
    struct fb_gpu gpus[FB_GPUS_MAX];
    struct fb_gpus *handle = fb_gpus_open();
    unsigned count = fb_gpus_read(handle, gpus);
    json_t *json = handle ? fb_gpus_json(gpus, count) : json_null();

    fb_gpus_close(handle);
    return json;
}

static json_t *device_json(struct fb_device *device, const char *kind, bool test,
                           unsigned *failed)
{
    struct fb_device_info info;
    json_t *json;

    device->ops->info(device, &info);
    json = json_pack("{s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "kind", kind, "name",
                     output_text(info.name), "driver", output_text(info.driver), "gpu", info.is_gpu,
                     "total_bytes", whole(info.total_bytes), "free_bytes", whole(info.free_bytes),
                     "pinned_bytes_per_s",
                     real(self_test_copy_rate(device, COPY_BYTES / 4, true)),
                     "pageable_bytes_per_s",
                     real(self_test_copy_rate(device, COPY_BYTES / 4, false)));
    if (test)
        json_object_set_new(json, "self_test", self_test(device, kind, &to_stderr, failed));
    return json;
}

/* All there are of one kind; without a driver there are none, and `why` says so. */
static void devices_find(json_t *devices, json_t *missing, const char *kind, bool test,
                         unsigned *failed)
{
    for (unsigned number = 0; number < DEVICES_SHOWN; number++) {
        struct fb_device *device;
        forebay_error error;
        char text[32];

        snprintf(text, sizeof(text), "%s:%u", kind, number);
        if (fb_device_open(&device, text, &to_stderr, &error)) {
            if (number == 0)
                json_object_set_new(missing, kind, output_text(error.message));
            return;
        }
        json_array_append_new(devices, device_json(device, text, test, failed));
        fb_device_close(device);
    }
}

static int devices_named(json_t *devices, const struct texts *names, bool test, unsigned *failed,
                         forebay_error *error)
{
    for (size_t i = 0; i < names->count; i++) {
        struct fb_device *device;
        int status = fb_device_open(&device, names->values[i], &to_stderr, error);

        if (status)
            return status;
        json_array_append_new(devices, device_json(device, names->values[i], test, failed));
        fb_device_close(device);
    }
    return FOREBAY_OK;
}

/* ---- For people ---- */

static const char *size_of(const json_t *json, const char *key, char text[32])
{
    const json_t *value = json_object_get(json, key);

    return json_is_integer(value) ? fb_size_text((uint64_t)json_integer_value(value), text) : "n/a";
}

static const char *rate_of(const json_t *json, const char *key, char text[32])
{
    const json_t *value = json_object_get(json, key);

    if (!json_is_real(value))
        return "n/a";
    snprintf(text, 32, "%.1f GB/s", json_real_value(value) / 1e9);
    return text;
}

static void device_print(const json_t *device)
{
    char a[32], b[32], c[32], d[32];
    size_t i;
    json_t *claim;

    printf("%-10s %s (%s)%s\n", json_string_value(json_object_get(device, "kind")),
           json_string_value(json_object_get(device, "name")),
           json_string_value(json_object_get(device, "driver")),
           json_is_true(json_object_get(device, "gpu")) ? "" : ", not a GPU");
    printf("           memory %s, free %s; copies %s pinned, %s pageable\n",
           size_of(device, "total_bytes", a), size_of(device, "free_bytes", b),
           rate_of(device, "pinned_bytes_per_s", c), rate_of(device, "pageable_bytes_per_s", d));
    json_array_foreach(json_object_get(device, "self_test"), i, claim) {
        bool good = json_is_true(json_object_get(claim, "ok"));

        printf("           %s  %s%s%s\n", good ? "ok    " : "FAILED",
               json_string_value(json_object_get(claim, "name")), good ? "" : ": ",
               json_string_value(json_object_get(claim, "words")));
    }
}

static const char *number_of(const json_t *json, const char *key, const char *unit, char text[32])
{
    const json_t *value = json_object_get(json, key);

    if (!json_is_number(value))
        return "n/a";
    snprintf(text, 32, "%.0f%s", json_number_value(value), unit);
    return text;
}

static void speed_print(const json_t *speed)
{
    char a[32], b[32], c[32];

    printf("speed      reads %s (%s), decodes %s images/s, %s of pixels, by one worker\n",
           rate_of(speed, "read_bytes_per_s", a),
           json_string_value(json_object_get(speed, "folder")),
           number_of(speed, "decode_images_per_s", "", b), rate_of(speed, "decode_bytes_per_s", c));
}

static void gpus_print(const json_t *gpus)
{
    size_t i;
    json_t *gpu;

    if (!json_is_array(gpus))
        printf("GPUs       n/a: NVIDIA's management library is not there\n");
    json_array_foreach(gpus, i, gpu) {
        const double mib = (double)FB_MIB;
        const json_t *used = json_object_get(gpu, "memory_used_bytes");
        char a[32], b[32], c[32], memory[64] = "n/a";

        if (json_is_number(used))
            snprintf(memory, sizeof(memory), "%.0f of %.0f MiB", json_number_value(used) / mib,
                     json_number_value(json_object_get(gpu, "memory_total_bytes")) / mib);
        printf("GPU %-6zu %s: %s busy, %s, %s, %s\n", i,
               json_string_value(json_object_get(gpu, "name")),
               number_of(gpu, "utilization_percent", " %", a), memory,
               number_of(gpu, "power_watts", " W", b),
               number_of(gpu, "temperature_celsius", " C", c));
    }
}

static void all_print(const json_t *all)
{
    const json_t *host = json_object_get(all, "host");
    char a[32], b[32], c[32], d[32];
    const char *kind;
    json_t *value;
    size_t i;

    printf("host       %d CPUs; memory %s, available %s, limit %s; memcpy %s\n",
           (int)json_integer_value(json_object_get(host, "cpus")),
           size_of(host, "total_bytes", a), size_of(host, "available_bytes", b),
           size_of(host, "limit_bytes", c), rate_of(host, "memcpy_bytes_per_s", d));
    speed_print(json_object_get(all, "speed"));
    gpus_print(json_object_get(all, "gpus"));
    json_array_foreach(json_object_get(all, "devices"), i, value)
        device_print(value);
    json_object_foreach(json_object_get(all, "missing"), kind, value)
        printf("%-10s none: %s\n", kind, json_string_value(value));
}

static int run(int argc, char **argv)
{
    struct texts names = { .count = 0 };
    bool json = options_has(argc, argv, "--json"), test = false;
    const struct option table[] = {
        { "--device", OPTION_TEXTS, &names, false },
        { "--self-test", OPTION_FLAG, &test, false },
        { "--json", OPTION_FLAG, &json, false },
    };
    json_t *devices = json_array(), *missing = json_object(), *all;
    forebay_error error;
    unsigned failed = 0;
    int code = EXIT_DONE, status = FOREBAY_OK;

    if (options_parse(argc, argv, table, 3, &error)) {
        code = output_bad_use("diagnose", json, &error);
    } else if (names.count) {
        status = devices_named(devices, &names, test, &failed, &error);
        if (status)
            code = output_failure("diagnose", json, &error);
    } else {
        devices_find(devices, missing, "cuda", test, &failed);
        devices_find(devices, missing, "opencl", test, &failed);
    }
    all = json_pack("{s:o, s:o, s:o, s:o, s:o, s:i}", "host", code ? json_null() : host_json(),
                    "speed", code ? json_null() : speed_json(&to_stderr), "gpus",
                    code ? json_null() : gpus_json(), "devices", devices, "missing", missing,
                    "failed", (int)failed);
    if (code == EXIT_DONE && json)
        code = output_json(json_incref(all));
    else if (code == EXIT_DONE)
        all_print(all);
    json_decref(all);
    free(names.values);
    return code == EXIT_DONE && failed ? EXIT_FAILED : code;
}

const struct command command_diagnose = {
    .name = "diagnose",
    .usage = "[--device KIND]... [--self-test] [--json]",
    .summary = "devices, drivers, limits, speed test; a device's self-test",
    .help = help,
    .run = run,
};

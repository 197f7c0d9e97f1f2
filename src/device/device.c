#include "device/device.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* In the order `auto` tries them; host, which is always there, comes last. */
static const struct fb_device_ops *const back_ends[] = {
    &fb_device_cuda,
#ifdef FB_OPENCL
    &fb_device_opencl,
#endif
    &fb_device_host,
};
/* Kinds that are known but not built. */
#ifdef FB_OPENCL
static const char *const not_built[] = { NULL };
#else
static const char *const not_built[] = { "opencl", NULL };
#endif

const char *const fb_kernel_names[FB_KERNEL_COUNT] = {
#define FB_X(name, text) text,
    FB_KERNEL_MAP(FB_X)
#undef FB_X
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define HIGHEST_NUMBER 1023

/* Split "cuda:1"; the number is all that stands behind the colon. */
static bool text_parse(const char *text, char *kind, size_t size, unsigned *number)
{
    const char *colon = strchr(text, ':');
    char *end;

    if (!colon || (size_t)(colon - text) >= size || !isdigit((unsigned char)colon[1]) ||
        strlen(colon + 1) > 4)
        return false;
    memcpy(kind, text, (size_t)(colon - text));
    kind[colon - text] = '\0';
    *number = (unsigned)strtoul(colon + 1, &end, 10);
    return !*end && *number <= HIGHEST_NUMBER;
}

static const struct fb_device_ops *back_end_find(const char *kind)
{
    for (size_t i = 0; i < COUNT(back_ends); i++)
        if (!strcmp(back_ends[i]->kind, kind))
            return back_ends[i];
    return NULL;
}

static int fail_kind(const char *text, const char *kind, forebay_error *error)
{
    for (size_t i = 0; kind && not_built[i]; i++)
        if (!strcmp(not_built[i], kind))
            return fb_fail(error, FOREBAY_NOT_BUILT,
                           "device.kind: %s: this forebay was built without %s; install its "
                           "headers and build again, or use host or auto", text, kind);
    fb_fail(error, FOREBAY_BAD_CONFIG,
            "device.kind: '%s' is no device; the choices are host, auto, cuda:0, opencl:0 (or "
            "another number)",
            text);
    fb_error_place(error, "device.kind");
    return FOREBAY_BAD_CONFIG;
}

/* The first that opens; the last in the list always does, unless there is no memory. */
static int open_any(struct fb_device **out, const struct fb_log *log, forebay_error *error)
{
    int status = FOREBAY_NO_DEVICE;

    for (size_t i = 0; i < COUNT(back_ends) && status == FOREBAY_NO_DEVICE; i++) {
        status = back_ends[i]->open(out, 0, true, log, error);
        if (status)
            continue;
        if (back_ends[i] == &fb_device_host)
            fb_say(log, "device: auto takes host: no GPU was found");
        else
            fb_say(log, "device: auto takes %s:%u", back_ends[i]->kind, (*out)->number);
    }
    return status;
}

static int open_named(struct fb_device **out, const char *text, const struct fb_log *log,
                      forebay_error *error)
{
    const struct fb_device_ops *ops;
    char kind[16];
    unsigned number;
    int status;

    if (!strcmp(text, "host"))
        return fb_device_host.open(out, 0, false, log, error);
    if (!strcmp(text, "auto"))
        return open_any(out, log, error);
    if (!text_parse(text, kind, sizeof(kind), &number))
        return fail_kind(text, NULL, error);
    ops = back_end_find(kind);
    if (!ops || ops == &fb_device_host) /* there is one host: it has no number */
        return fail_kind(text, kind, error);
    status = ops->open(out, number, false, log, error);
    if (status)
        fb_error_place(error, "device.kind");
    return status;
}

int fb_device_open(struct fb_device **out, const char *text, const struct fb_log *log,
                   forebay_error *error)
{
    struct fb_device *device;
    int status = open_named(&device, text, log, error);

    if (status)
        return status;
    atomic_init(&device->references, 1);
    *out = device;
    return FOREBAY_OK;
}

struct fb_device *fb_device_share(struct fb_device *device)
{
    atomic_fetch_add(&device->references, 1);
    return device;
}

void fb_device_close(struct fb_device *device)
{
    if (device && atomic_fetch_sub(&device->references, 1) == 1)
        device->ops->close(device);
}

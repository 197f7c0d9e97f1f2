/*
 * libnvidia_ml.c -- NVIDIA's management library of our own, for tests: libnvidia-ml.so.1 with as
 * many devices as EMULATED_CUDA_DEVICES says, of EMULATED_CUDA_MEMORY bytes each. Device i is
 * 40 + i percent busy, uses (i + 1) / 8 of its memory, takes 100.5 + i watts, has 50 + i degrees.
 *
 *   EMULATED_NVML_FAIL   calls that fail, e.g. "nvmlInit_v2" or, on device 1 only,
 *                        "nvmlDeviceGetTemperature@1"; several with commas
 *
 * It is strict: it aborts, with a sentence, on a call before nvmlInit_v2 or after nvmlShutdown, on
 * a handle it did not give, on a name's room of no use, and on an nvmlInit_v2 without its
 * nvmlShutdown at exit.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALL __attribute__((visibility("default"))) int
#define DEVICES_MAX 16
enum { SUCCESS = 0, NOT_SUPPORTED = 3, UNKNOWN = 999, INVALID_ARGUMENT = 2 };

struct utilisation {
    unsigned gpu, memory;
};
struct memory {
    unsigned long long total, free, used;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static pid_t owner;
static char handles[DEVICES_MAX]; /* device i is the address of handles[i] */

static void fatal(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fatal(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    fprintf(stderr, "emulated NVML: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    abort();
}

static uint64_t number_from(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text ? strtoull(text, NULL, 10) : fallback;
}

static unsigned count(void)
{
    uint64_t devices = number_from("EMULATED_CUDA_DEVICES", 1);

    return devices < DEVICES_MAX ? (unsigned)devices : DEVICES_MAX;
}

/* Is `call`, or `call`@`device`, in the list of what fails? */
static bool fails(const char *call, unsigned device)
{
    const char *at = getenv("EMULATED_NVML_FAIL");
    char one[80];

    snprintf(one, sizeof(one), "%s@%u", call, device);
    while (at && *at) {
        size_t length = strcspn(at, ",");

        if ((length == strlen(call) && !strncmp(at, call, length)) ||
            (length == strlen(one) && !strncmp(at, one, length)))
            return true;
        at += length + (at[length] == ',');
    }
    return false;
}

static void check_users(const char *call)
{
    pthread_mutex_lock(&lock);
    if (!users)
        fatal("%s without nvmlInit_v2", call);
    if (owner != getpid())
        fatal("%s in a forked child", call);
    pthread_mutex_unlock(&lock);
}

/* Which device, and whether this call fails on it. */
static int enter(const char *call, const void *handle, unsigned *device)
{
    check_users(call);
    for (unsigned i = 0; i < count(); i++)
        if (handle == &handles[i]) {
            *device = i;
            return fails(call, i) ? NOT_SUPPORTED : SUCCESS;
        }
    fatal("%s: no device has the handle %p", call, handle);
}

static void check_exit(void)
{
    if (users && owner == getpid())
        fatal("%u times more initialised than shut down", users);
}

CALL nvmlInit_v2(void)
{
    if (fails("nvmlInit_v2", 0))
        return UNKNOWN;
    pthread_mutex_lock(&lock);
    if (!owner)
        atexit(check_exit);
    owner = getpid();
    users++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CALL nvmlShutdown(void)
{
    check_users("nvmlShutdown");
    pthread_mutex_lock(&lock);
    users--;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

CALL nvmlDeviceGetCount_v2(unsigned *out)
{
    check_users("nvmlDeviceGetCount_v2");
    if (fails("nvmlDeviceGetCount_v2", 0))
        return UNKNOWN;
    *out = count();
    return SUCCESS;
}

CALL nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    check_users("nvmlDeviceGetHandleByIndex_v2");
    if (index >= count())
        return INVALID_ARGUMENT;
    if (fails("nvmlDeviceGetHandleByIndex_v2", index))
        return UNKNOWN;
    *out = &handles[index];
    return SUCCESS;
}

CALL nvmlDeviceGetName(void *handle, char *name, unsigned length)
{
    unsigned device;
    int status = enter("nvmlDeviceGetName", handle, &device);

    if (length < 64)
        fatal("nvmlDeviceGetName with room for %u characters", length);
    if (!status)
        snprintf(name, length, "Emulated GPU %u", device);
    return status;
}

CALL nvmlDeviceGetUtilizationRates(void *handle, struct utilisation *rates)
{
    unsigned device;
    int status = enter("nvmlDeviceGetUtilizationRates", handle, &device);

    if (!status)
        *rates = (struct utilisation){ 40 + device, 10 };
    return status;
}

CALL nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory)
{
    unsigned long long total = number_from("EMULATED_CUDA_MEMORY", 256 << 20);
    unsigned device;
    int status = enter("nvmlDeviceGetMemoryInfo", handle, &device);

    if (!status) {
        unsigned long long used = total / 8 * (device % 8 + 1);

        *memory = (struct memory){ total, total - used, used };
    }
    return status;
}

CALL nvmlDeviceGetPowerUsage(void *handle, unsigned *milliwatts)
{
    unsigned device;
    int status = enter("nvmlDeviceGetPowerUsage", handle, &device);

    if (!status)
        *milliwatts = 100500 + 1000 * device;
    return status;
}

CALL nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *degrees)
{
    unsigned device;
    int status = enter("nvmlDeviceGetTemperature", handle, &device);

    if (sensor != 0)
        fatal("nvmlDeviceGetTemperature of sensor %d", sensor);
    if (!status)
        *degrees = 50 + device;
    return status;
}

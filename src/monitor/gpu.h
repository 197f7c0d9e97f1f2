/* gpu.h -- what the GPUs do, asked of NVIDIA's management library if it is there (dlopen). Unknown
 * is NAN; without the library there are no GPUs to tell of. */
#ifndef FB_MONITOR_GPU_H
#define FB_MONITOR_GPU_H
#include <stdbool.h>

#define FB_GPUS_MAX 16

struct fb_gpu {
    char name[64];
    double utilisation;               /* percent */
    double memory_used, memory_total; /* bytes */
    double power;                     /* watts */
    double temperature;               /* degrees Celsius */
};

struct fb_gpus;

/* NULL if there is no such library or it does not work. Takes a moment. */
struct fb_gpus *fb_gpus_open(void);
void fb_gpus_close(struct fb_gpus *gpus);
/* Returns how many there are; 0 for NULL. */
unsigned fb_gpus_read(struct fb_gpus *gpus, struct fb_gpu out[FB_GPUS_MAX]);
#endif

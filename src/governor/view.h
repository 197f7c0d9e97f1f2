/* view.h -- what the governor decides by, made from an observer's last look. */
#ifndef FB_GOVERNOR_VIEW_H
#define FB_GOVERNOR_VIEW_H
#include <stdatomic.h>

#include "governor/decide.h"
#include "governor/governor.h"
#include "monitor/observe.h"

/* What the user has fixed, by key. */
enum fb_fixed { FB_FIXED_CACHE, FB_FIXED_WORKERS, FB_FIXED_PREFETCH, FB_FIXED_CPU, FB_FIXED_COUNT };

struct fb_view fb_view_make(const struct fb_observer *look,
                            const struct fb_governor_options *options,
                            const atomic_bool fixed[FB_FIXED_COUNT], uint64_t now_ns);
#endif

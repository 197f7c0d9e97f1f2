/* sanitized.h -- which sanitizer this is compiled for; gcc and clang tell it in different ways. */
#ifndef FB_BASE_SANITIZED_H
#define FB_BASE_SANITIZED_H

#if defined(__has_feature)
#define FB_HAS_FEATURE(name) __has_feature(name)
#else
#define FB_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || FB_HAS_FEATURE(thread_sanitizer)
#define FB_SANITIZED_THREAD 1
#else
#define FB_SANITIZED_THREAD 0
#endif

/* By any that has an allocator and calls of its own. */
#if FB_SANITIZED_THREAD || defined(__SANITIZE_ADDRESS__) || FB_HAS_FEATURE(address_sanitizer) ||   \
    FB_HAS_FEATURE(memory_sanitizer)
#define FB_SANITIZED 1
#else
#define FB_SANITIZED 0
#endif
#endif

/* arena.h -- many small pieces of memory that are given back together. */
#ifndef FB_CONFIG_ARENA_H
#define FB_CONFIG_ARENA_H
#include <stddef.h>

/* {0} is an empty one. Each piece is a malloc of its own, so that sanitizers see its bounds. */
struct fb_arena {
    struct fb_arena_piece *pieces;
};

/* Zeroed; NULL if there is no memory. */
void *fb_arena_take(struct fb_arena *arena, size_t bytes);
/* The first `length` bytes of `text`, and a NUL. */
char *fb_arena_copy(struct fb_arena *arena, const char *text, size_t length);
void fb_arena_release(struct fb_arena *arena);
#endif

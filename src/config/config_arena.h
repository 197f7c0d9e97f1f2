/* config_arena.h -- many small pieces of memory that are given back together. */
#ifndef FB_CONFIG_CONFIG_ARENA_H
#define FB_CONFIG_CONFIG_ARENA_H
#include <stddef.h>

/* {0} is an empty one. Each piece is a malloc of its own, so that sanitizers see its bounds. */
struct fb_config_arena {
    struct fb_config_arena_piece *pieces;
};

/* Zeroed; NULL if there is no memory. */
void *fb_config_arena_take(struct fb_config_arena *arena, size_t bytes);
/* The first `length` bytes of `text`, and a NUL. */
char *fb_config_arena_copy(struct fb_config_arena *arena, const char *text, size_t length);
void fb_config_arena_release(struct fb_config_arena *arena);
#endif

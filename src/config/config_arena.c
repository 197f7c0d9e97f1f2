#include "config/config_arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

struct fb_config_arena_piece {
    struct fb_config_arena_piece *next;
    max_align_t bytes[];
};

void *fb_config_arena_take(struct fb_config_arena *arena, size_t bytes)
{
    struct fb_config_arena_piece *piece;

    if (bytes > SIZE_MAX - sizeof(*piece))
        return NULL;
    piece = calloc(1, sizeof(*piece) + bytes);
    if (!piece)
        return NULL;
    piece->next = arena->pieces;
    arena->pieces = piece;
    return piece->bytes;
}

char *fb_config_arena_copy(struct fb_config_arena *arena, const char *text, size_t length)
{
    char *copy = length < SIZE_MAX ? fb_config_arena_take(arena, length + 1) : NULL;

    if (copy && length)
        memcpy(copy, text, length);
    return copy;
}

void fb_config_arena_release(struct fb_config_arena *arena)
{
    while (arena->pieces) {
        struct fb_config_arena_piece *next = arena->pieces->next;

        free(arena->pieces);
        arena->pieces = next;
    }
}

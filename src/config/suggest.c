/* suggest.c -- the known key nearest to one that is not. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "config/key.h"

#define TEXT_MAX 64 /* nothing longer is near to any key */
#define FAR 1000

/* Letters to add, drop, change or swap with their neighbour, to make one of the other. */
static unsigned distance(const char *a, const char *b)
{
    unsigned rows[3][TEXT_MAX + 1];
    unsigned *before = rows[0], *above = rows[1], *row = rows[2];
    size_t length_a = strlen(a), length_b = strlen(b);

    if (length_a > TEXT_MAX || length_b > TEXT_MAX)
        return FAR;
    for (size_t j = 0; j <= length_b; j++)
        above[j] = (unsigned)j;
    for (size_t i = 1; i <= length_a; i++) {
        unsigned *spare = before;

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= length_b; j++) {
            int same = tolower((unsigned char)a[i - 1]) == tolower((unsigned char)b[j - 1]);
            unsigned best = above[j - 1] + !same;

            best = above[j] + 1 < best ? above[j] + 1 : best;
            best = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            if (!same && i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            row[j] = best;
        }
        before = above;
        above = row;
        row = spare;
    }
    return above[length_b];
}

/* How far off a text of this length may be and still be meant. */
static unsigned reach(const char *text)
{
    size_t length = strlen(text);

    return length <= 3 ? 1 : length <= 6 ? 2 : 3;
}

static unsigned near_distance(const char *a, const char *b, unsigned within)
{
    unsigned found = distance(a, b);

    return found <= within ? found : FAR;
}

static const char *leaf(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

/* In the same section the last words are compared; else the whole paths, or, one farther off, the
 * last words: the key may have been put in the wrong section. */
static unsigned key_distance(const char *path, const char *key)
{
    const char *a = leaf(path), *b = leaf(key);
    unsigned whole, last;

    if (a - path == b - key && strncmp(path, key, (size_t)(a - path)) == 0)
        return near_distance(a, b, reach(a));
    whole = near_distance(path, key, reach(path));
    last = near_distance(a, b, reach(a) - 1);
    return whole <= last ? whole : last + 1;
}

const char *fb_suggest_key(const char *path, unsigned flags)
{
    const char *best = NULL, *foreign;
    unsigned nearest = FAR;

    for (size_t i = 0; i < fb_key_count; i++) {
        unsigned here = key_distance(path, fb_keys[i].name);

        if ((fb_keys[i].flags & flags) == flags && here < nearest) {
            nearest = here;
            best = fb_keys[i].name;
        }
    }
    for (size_t i = 0; !flags; i++) {
        const char *ours = fb_foreign_name(i, &foreign);
        unsigned here;

        if (!foreign)
            break;
        here = near_distance(leaf(path), foreign, 2);
        if (ours && here < nearest) {
            nearest = here;
            best = ours;
        }
    }
    return best;
}

bool fb_suggest_section(const char *path, char section[FB_KEY_BYTES])
{
    unsigned nearest = FAR;

    for (size_t i = 0; i < fb_key_count; i++) {
        const char *key = fb_keys[i].name;
        char name[FB_KEY_BYTES];
        unsigned here;

        if (leaf(key) == key)
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(leaf(key) - key - 1), key);
        here = near_distance(path, name, reach(path));
        if (here < nearest) {
            nearest = here;
            memcpy(section, name, sizeof(name));
        }
    }
    return nearest < FAR;
}

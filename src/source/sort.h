/* sort.h -- sorting in place (qsort may take as much memory again, which no budget knows of), and
 * the order people expect of names. */
#ifndef FB_SOURCE_SORT_H
#define FB_SOURCE_SORT_H
#include <stddef.h>
#include <stdint.h>

/* Below, equal or above 0, as for qsort; `data` is the caller's. */
typedef int (*fb_compare_fn)(const void *a, const void *b, const void *data);

#define FB_SORT_BYTES 64 /* the largest element */

/* O(n log n) always, O(log n) stack, no allocation. Not stable: compare to the last difference. */
void fb_sort(void *array, uint64_t count, size_t size, fb_compare_fn compare, const void *data);

/* part2 before part10: runs of digits are compared as numbers of any length, all else byte by
 * byte. 0 only if the names are equal. */
int fb_natural_compare(const char *a, const char *b);
#endif

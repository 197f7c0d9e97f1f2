#include "source/sort.h"

#include <string.h>

struct sort {
    char *array;
    size_t size;
    fb_compare_fn compare;
    const void *data;
};

static char *at(const struct sort *sort, uint64_t i)
{
    return sort->array + i * sort->size;
}

static int compare(const struct sort *sort, uint64_t i, uint64_t k)
{
    return sort->compare(at(sort, i), at(sort, k), sort->data);
}

static void swap(const struct sort *sort, uint64_t i, uint64_t k)
{
    char kept[FB_SORT_BYTES];

    memcpy(kept, at(sort, i), sort->size);
    memcpy(at(sort, i), at(sort, k), sort->size);
    memcpy(at(sort, k), kept, sort->size);
}

static void sort_few(const struct sort *sort, uint64_t low, uint64_t high)
{
    for (uint64_t i = low + 1; i < high; i++)
        for (uint64_t k = i; k > low && compare(sort, k - 1, k) > 0; k--)
            swap(sort, k - 1, k);
}

static void sift(const struct sort *sort, uint64_t low, uint64_t root, uint64_t count)
{
    for (uint64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && compare(sort, low + child, low + child + 1) < 0)
            child++;
        if (compare(sort, low + root, low + child) >= 0)
            return;
        swap(sort, low + root, low + child);
    }
}

/* What is left when partitions turn out badly, by chance or because somebody meant them to. */
static void sort_heap(const struct sort *sort, uint64_t low, uint64_t high)
{
    uint64_t count = high - low;

    for (uint64_t i = count / 2; i-- > 0;)
        sift(sort, low, i, count);
    while (count > 1) {
        swap(sort, low, low + --count);
        sift(sort, low, 0, count);
    }
}

/* Around the middle one of three, which ends up where it belongs. */
static uint64_t partition(const struct sort *sort, uint64_t low, uint64_t high)
{
    uint64_t middle = low + (high - low) / 2, i = low, k = high - 1;

    if (compare(sort, middle, low) < 0)
        swap(sort, middle, low);
    if (compare(sort, high - 1, low) < 0)
        swap(sort, high - 1, low);
    if (compare(sort, high - 1, middle) < 0)
        swap(sort, high - 1, middle);
    swap(sort, low, middle); /* the pivot stands first; the last one is not below it */
    for (;;) {
        while (compare(sort, ++i, low) < 0)
            ; /* ends at the last one at the latest */
        while (compare(sort, k, low) > 0)
            k--;
        if (i >= k)
            break;
        swap(sort, i, k--);
    }
    swap(sort, low, k);
    return k;
}

static void sort_range(const struct sort *sort, uint64_t low, uint64_t high, unsigned depth)
{
    while (high - low > 16) {
        uint64_t cut;

        if (depth-- == 0) {
            sort_heap(sort, low, high);
            return;
        }
        cut = partition(sort, low, high);
        if (cut - low < high - cut) { /* the smaller part by a call: the stack stays O(log n) */
            sort_range(sort, low, cut, depth);
            low = cut + 1;
        } else {
            sort_range(sort, cut + 1, high, depth);
            high = cut;
        }
    }
    sort_few(sort, low, high);
}

void fb_sort(void *array, uint64_t count, size_t size, fb_compare_fn compare_fn, const void *data)
{
    struct sort sort = { array, size, compare_fn, data };
    unsigned depth = 4;

    for (uint64_t n = count; n > 1; n /= 2)
        depth += 2;
    for (uint64_t i = 1; i < count; i++) { /* mostly it is sorted already */
        if (compare(&sort, i - 1, i) > 0) {
            sort_range(&sort, 0, count, depth);
            return;
        }
    }
}

static int is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Two runs of digits as numbers; both pointers end behind them. */
static int compare_numbers(const char **a, const char **b)
{
    const char *from_a, *from_b;
    size_t length;

    while (**a == '0')
        ++*a;
    while (**b == '0')
        ++*b;
    from_a = *a;
    from_b = *b;
    while (is_digit(**a))
        ++*a;
    while (is_digit(**b))
        ++*b;
    length = (size_t)(*a - from_a);
    if (length != (size_t)(*b - from_b))
        return length < (size_t)(*b - from_b) ? -1 : 1;
    return memcmp(from_a, from_b, length);
}

int fb_natural_compare(const char *a, const char *b)
{
    const char *whole_a = a, *whole_b = b;

    while (*a && *b) {
        if (is_digit(*a) && is_digit(*b)) {
            int order = compare_numbers(&a, &b);

            if (order)
                return order;
        } else if (*a != *b) {
            break;
        } else {
            a++;
            b++;
        }
    }
    if (*a != *b)
        return (unsigned char)*a < (unsigned char)*b ? -1 : 1;
    return strcmp(whole_a, whole_b); /* 01 and 1 are different names */
}

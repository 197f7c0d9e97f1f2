/* chart.c -- draws numbers as columns of characters. */
#include "chart.h"

#include <math.h>
#include <string.h>

#define STEPS 8 /* heights of a block character */

static const char *const blocks[STEPS + 1] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
static const char *const plain[STEPS + 1] = { " ", ".", ".", ":", ":", "|", "|", "#", "#" };

/* How many steps of this row the point fills. */
static unsigned steps_of(float point, float top, unsigned rows, unsigned row)
{
    unsigned all = rows * STEPS, below = (rows - 1 - row) * STEPS, high;
    double share = top > 0 ? (double)point / (double)top : 0;

    if (isnan(point))
        return 0;
    high = share >= 1 ? all : share > 0 ? (unsigned)(share * all + 0.5) : 1;
    high = high ? high : 1;
    return high <= below ? 0 : high - below < STEPS ? high - below : STEPS;
}

void chart_row(char *text, size_t size, const float *points, unsigned count, float top,
               unsigned rows, unsigned row, unsigned columns, bool unicode)
{
    unsigned shown = count < columns ? count : columns;
    size_t at = 0;

    for (unsigned i = 0; i < columns; i++) {
        unsigned empty = columns - shown;
        unsigned steps = i < empty ? 0
                                   : steps_of(points[count - shown + i - empty], top, rows, row);
        const char *mark = unicode ? blocks[steps] : plain[steps];
        size_t length = strlen(mark);

        if (at + length + 1 > size)
            break;
        memcpy(text + at, mark, length);
        at += length;
    }
    text[at] = '\0';
}

float chart_top(const float *points, unsigned count)
{
    float top = 0;

    for (unsigned i = 0; i < count; i++)
        if (points[i] > top)
            top = points[i];
    return top;
}

const char *chart_arrow(int trend, bool unicode)
{
    static const char *const arrows[2][3] = { { "v", "=", "^" }, { "↓", "→", "↑" } };

    return arrows[unicode][trend + 1];
}

/* chart.h -- numbers as columns of block characters; '#' and '.' where the terminal has no UTF-8. */
#ifndef CLI_CHART_H
#define CLI_CHART_H
#include <stdbool.h>
#include <stddef.h>

/* One row of a chart `rows` high and `columns` wide, `row` 0 is the uppermost; the newest point is
 * at the right. `top` is the value that fills the chart. An unknown point is blank, any other at
 * least one mark high. `size` >= 3 * columns + 1. */
void chart_row(char *text, size_t size, const float *points, unsigned count, float top,
               unsigned rows, unsigned row, unsigned columns, bool unicode);
/* The largest known point, 0 if there is none. */
float chart_top(const float *points, unsigned count);
/* An arrow for +1, 0 and -1. */
const char *chart_arrow(int trend, bool unicode);
#endif

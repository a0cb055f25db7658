/* SPDX-License-Identifier: Apache-2.0
 *
 * median.h: the middle of several measurements, for the benchmarks' programs in C.
 */
#pragma once

#include <stdlib.h>

static inline int median_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Sorts the values, of which there is at least one. */
static inline double median_of(double *values, unsigned count)
{
    qsort(values, count, sizeof values[0], median_compare);
    return values[count / 2];
}

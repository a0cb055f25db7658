/* SPDX-License-Identifier: Apache-2.0
 *
 * each.h: goes over an array.
 */
#pragma once

/* `item` points to each of so many elements in turn. A loop that needs their numbers counts. */
#define gs_each(item, array, number)                                                           \
    for (typeof(*(array)) *item = (array),                                                     \
                          *item##_end = (number) != 0 ? item + (number) : item;                \
         item != item##_end; item++)

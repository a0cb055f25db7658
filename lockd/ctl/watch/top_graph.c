/* SPDX-License-Identifier: Apache-2.0
 *
 * top_graph.c: bars made of characters. No state.
 */
#include "lockd/ctl/watch/top_graph.h"

#include <langinfo.h>
#include <stdio.h>
#include <string.h>

#define STEPS 8

const char *top_graph_line(const double *values, size_t columns, char *buffer, size_t size)
{
    static const char *const blocks[STEPS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char *const plain[STEPS] = {"_", ".", ":", "-", "=", "+", "*", "#"};
    const char *const *marks = strcmp(nl_langinfo(CODESET), "UTF-8") == 0 ? blocks : plain;
    size_t at = 0;

    for (size_t i = 0; i < columns; i++) {
        const double value = values[i] > 1 ? 1 : values[i];
        const char *mark = value < 0 ? " " : marks[(int)(value * (STEPS - 1) + 0.5)];

        if (at + strlen(mark) + 1 > size)
            break;
        at += (size_t)snprintf(buffer + at, size - at, "%s", mark);
    }
    buffer[at] = '\0';
    return buffer;
}

const char *top_graph_bar(uint64_t resident, uint64_t pinned, uint64_t host, uint64_t total,
                          int width, char *buffer)
{
    const struct {
        uint64_t bytes;
        char mark;
    } parts[] = {{resident, '#'}, {pinned, '+'}, {host, '-'}};
    uint64_t sum = 0;
    int at = 0;

    buffer[0] = '[';
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        int end;

        sum += parts[i].bytes;
        end = total == 0 ? 0 : (int)((double)sum * width / (double)total + 0.5);
        if (parts[i].bytes != 0 && end == at)
            end = at + 1; /* a small value is visible */
        for (; at < end && at < width; at++)
            buffer[1 + at] = parts[i].mark;
    }
    for (; at < width; at++)
        buffer[1 + at] = '.';
    buffer[1 + width] = ']';
    buffer[2 + width] = '\0';
    return buffer;
}

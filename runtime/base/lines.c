/* SPDX-License-Identifier: Apache-2.0
 *
 * lines.c: reads a file of /proc line by line. No state.
 */
#include "runtime/base/lines.h"

#include <fcntl.h>

void gs_lines_read(const char *path, size_t most, void (*take)(char *line, void *context),
                   void *context)
{
    char text[4096 + 1];
    size_t kept = 0;
    ssize_t got;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    while (most != 0 && (got = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
        char *line = text, *end;

        text[kept + (size_t)got] = '\0';
        most -= (size_t)got < most ? (size_t)got : most;
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            take(line, context);
            line = end + 1;
        }
        kept = strlen(line);
        if (kept == sizeof text - 1)
            kept = 0; /* too long */
        memmove(text, line, kept);
    }
    close(fd);
}

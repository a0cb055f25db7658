/* SPDX-License-Identifier: Apache-2.0
 *
 * hostmem.c: reads /proc/meminfo. No state.
 */
#include "lockd/base/hostmem.h"
#include "common/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

uint64_t lockd_host_parse(const char *meminfo)
{
    static const char key[] = "MemAvailable:";
    const char *line = strstr(meminfo, key);
    unsigned long long kib;
    char *end;

    if (line == NULL || (line != meminfo && line[-1] != '\n'))
        return UINT64_MAX;
    errno = 0;
    kib = strtoull(line + sizeof key - 1, &end, 10);
    if (errno != 0 || strncmp(end, " kB", 3) != 0 || kib > UINT64_MAX / 1024)
        return UINT64_MAX;
    return kib * 1024;
}

uint64_t lockd_host_available(void)
{
    GS_CLOSE_FD int fd = open("/proc/meminfo", O_RDONLY | O_CLOEXEC);
    char text[4096];
    ssize_t size;

    if (fd < 0)
        return UINT64_MAX;
    size = read(fd, text, sizeof text - 1);
    if (size <= 0)
        return UINT64_MAX;
    text[size] = '\0';
    return lockd_host_parse(text);
}

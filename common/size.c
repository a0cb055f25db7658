/* SPDX-License-Identifier: Apache-2.0
 *
 * size.c: reads and writes byte counts. No state.
 */
#include "common/size.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char units[] = "KMGTPE";

static int unit_factor(const char *suffix, double *factor)
{
    const char *at;
    unsigned power;
    double base = 1024;

    *factor = 1;
    if (*suffix == '\0' || strcasecmp(suffix, "B") == 0)
        return 0;
    at = strchr(units, toupper((unsigned char)*suffix));
    if (at == NULL)
        return -EINVAL;
    suffix++;
    if (strcasecmp(suffix, "B") == 0)
        base = 1000;
    else if (*suffix != '\0' && strcasecmp(suffix, "i") != 0 && strcasecmp(suffix, "iB") != 0)
        return -EINVAL;
    for (power = 0; power <= (unsigned)(at - units); power++)
        *factor *= base;
    return 0;
}

int gs_size_parse(const char *text, uint64_t *bytes)
{
    char *end;
    double value, factor;

    if (text == NULL || !isdigit((unsigned char)*text) ||
        (text[0] == '0' && (text[1] | 32) == 'x'))
        return -EINVAL;
    errno = 0;
    value = strtod(text, &end);
    if (errno != 0 || end == text ||
        end != text + strspn(text, "0123456789.")) /* no exponents */
        return -EINVAL;
    while (*end == ' ')
        end++;
    if (unit_factor(end, &factor) != 0)
        return -EINVAL;
    if (factor == 1 && strchr(text, '.') == NULL) { /* exact where a double would round */
        unsigned long long exact = strtoull(text, NULL, 10);

        if (errno != 0)
            return -ERANGE;
        *bytes = exact;
        return 0;
    }
    if (value * factor >= 18446744073709551616.0)
        return -ERANGE;
    *bytes = (uint64_t)(value * factor);
    return 0;
}

char *gs_size_format(uint64_t bytes, char *buffer, size_t size)
{
    double value = (double)bytes;
    int unit = -1;

    while (value >= 1024 && units[unit + 1] != '\0') {
        value /= 1024;
        unit++;
    }
    if (unit < 0)
        snprintf(buffer, size, "%u B", (unsigned)bytes);
    else
        snprintf(buffer, size, "%.1f %ciB", value, units[unit]);
    return buffer;
}

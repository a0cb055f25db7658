/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h: well-formed characters of UTF-8 (RFC 3629).
 */
#pragma once

#include <stddef.h>

/* Bytes of the character at p, in a text that ends with NUL; 0: there is none. */
static inline size_t gs_utf8_length(const unsigned char *p)
{
    const size_t length = *p < 0x80   ? 1
                          : *p < 0xc2 ? 0
                          : *p < 0xe0 ? 2
                          : *p < 0xf0 ? 3
                          : *p < 0xf5 ? 4
                                      : 0;

    for (size_t i = 1; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    if ((*p == 0xe0 && p[1] < 0xa0) || (*p == 0xed && p[1] > 0x9f) ||
        (*p == 0xf0 && p[1] < 0x90) || (*p == 0xf4 && p[1] > 0x8f))
        return 0;
    return length;
}

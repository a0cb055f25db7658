/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c: finds the bytes of a text that may be shown, and measures it. No
 * state.
 */
#include "lockd/base/text.h"
#include "common/utf8.h"

#include <stdio.h>
#include <string.h>
#include <wchar.h>

/* U+200E, U+200F, U+2028 to U+202E, U+2066 to U+2069: ends of lines, and characters that change
 * the direction of the text behind them. */
static bool is_format_character(const unsigned char *at)
{
    if (at[0] != 0xe2)
        return false;
    return at[1] == 0x80 ? at[2] == 0x8e || at[2] == 0x8f || (at[2] >= 0xa8 && at[2] <= 0xae)
                         : at[1] == 0x81 && at[2] >= 0xa6 && at[2] <= 0xa9;
}

/* U+0000 to U+001F, U+007F, U+0080 to U+009F (which some terminals take for ESC and a letter).
 */
static bool is_control_character(const unsigned char *at, size_t length)
{
    if (length == 1)
        return at[0] < 0x20 || at[0] == 0x7f;
    return length == 2 ? at[0] == 0xc2 && at[1] < 0xa0 : length == 3 && is_format_character(at);
}

void lockd_text_clean(char *text, size_t size)
{
    unsigned char *at = (unsigned char *)text;

    text[size - 1] = '\0';
    while (*at != '\0') {
        const size_t length = gs_utf8_length(at);

        if (length == 0 || is_control_character(at, length)) {
            memset(at, '?', length == 0 ? 1 : length);
            at++;
        } else {
            at += length;
        }
    }
}

/* The columns that the character of that length takes on a terminal, according to the locale. */
static size_t measure_width(const unsigned char *at, size_t length)
{
    static const unsigned char first[] = {0, 0x7f, 0x1f, 0x0f, 0x07};
    wchar_t code = at[0] & first[length];
    int width;

    for (size_t i = 1; i < length; i++)
        code = (wchar_t)((code << 6) | (at[i] & 0x3f));
    width = wcwidth(code);
    return width < 0 ? 1 : (size_t)width;
}

const char *lockd_text_fit(const char *text, size_t columns, char *buffer, size_t size)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t used = 0;

    while (*at != '\0') {
        const size_t length = gs_utf8_length(at);
        const size_t width = length != 0 ? measure_width(at, length) : 0;

        if (length == 0 || width > columns || used + length + 1 > size)
            break;
        memcpy(buffer + used, at, length);
        used += length;
        columns -= width;
        at += length;
    }
    for (; columns > 0 && used + 1 < size; columns--)
        buffer[used++] = ' ';
    buffer[used] = '\0';
    return buffer;
}

size_t lockd_text_width(const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t width = 0, length;

    for (; *at != '\0' && (length = gs_utf8_length(at)) != 0; at += length)
        width += measure_width(at, length);
    return width;
}

const char *lockd_text_cut(const char *text, size_t columns, char *buffer, size_t size)
{
    const char *mark = wcwidth(L'…') == 1 ? "…" : "+";

    if (columns == 0 || size < 4 || lockd_text_width(text) <= columns)
        return lockd_text_fit(text, columns, buffer, size);
    lockd_text_fit(text, columns - 1, buffer, size - 3);
    snprintf(buffer + strlen(buffer), size - strlen(buffer), "%s", mark);
    return buffer;
}

bool lockd_text_is_similar(const char *word, const char *name)
{
    const char *a = word, *b = name;

    while (*a != '\0' && *a == *b)
        a++, b++;
    if (a == word && strlen(word) < 3) /* nothing in common */
        return false;
    return strcmp(a, b) == 0 || (*a != '\0' && strcmp(a + 1, b) == 0) ||
           (*b != '\0' && strcmp(a, b + 1) == 0) ||
           (*a != '\0' && *b != '\0' && strcmp(a + 1, b + 1) == 0) ||
           (*a != '\0' && *b != '\0' && a[0] == b[1] && a[1] == b[0] &&
            strcmp(a + 2, b + 2) == 0);
}

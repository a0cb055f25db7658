/* SPDX-License-Identifier: Apache-2.0
 *
 * say.c: see say.h. No state, any thread.
 */
#include "rewriter/elf/say.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* U+0080 to U+009F in UTF-8: to some terminals each is an escape character and a letter. */
static bool is_escape(const unsigned char *text)
{
    return text[0] == 0xc2 && text[1] >= 0x80 && text[1] <= 0x9f;
}

void elf_say_clean(char *text)
{
    for (; *text != '\0'; text++) {
        if (is_escape((const unsigned char *)text))
            *text++ = '?';
        else if ((unsigned char)*text >= ' ' && *text != 0x7f)
            continue;
        *text = '?';
    }
}

void elf_say(FILE *to, const char *format, ...)
{
    char *text = NULL;
    size_t length;
    va_list ap;
    int n;

    va_start(ap, format);
    n = vasprintf(&text, format, ap);
    va_end(ap);
    if (n < 0)
        return;
    length = (size_t)n;
    if (length > 0 && text[length - 1] == '\n')
        text[--length] = '\0';
    elf_say_clean(text);
    fputs(text, to);
    if (length < (size_t)n)
        fputc('\n', to);
    free(text);
}

/* Bytes of the UTF-8 character at p (RFC 3629), 0 if there is none. */
static size_t utf8_length(const unsigned char *p)
{
    size_t length = *p < 0x80   ? 1
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

void elf_say_json(FILE *to, const char *text)
{
    fputc('"', to);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        size_t length = utf8_length(p);

        if (length == 0)
            fputs("\\ufffd", to);
        else if (*p == '"' || *p == '\\')
            fprintf(to, "\\%c", *p);
        else if (*p < 0x20 || *p == 0x7f)
            fprintf(to, "\\u%04x", *p);
        else
            fwrite(p, 1, length, to);
        p += length > 0 ? length : 1;
    }
    fputc('"', to);
}

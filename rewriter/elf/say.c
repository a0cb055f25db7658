/* SPDX-License-Identifier: Apache-2.0
 *
 * say.c: see say.h. No state, any thread.
 */
#include "rewriter/elf/say.h"
#include "common/utf8.h"

#include <stdarg.h>
#include <stdlib.h>

void elf_say_clean(char *text)
{
    for (unsigned char *at = (unsigned char *)text; *at != '\0'; at++) {
        /* U+0080 to U+009F in UTF-8: to some terminals each is an escape character and a letter */
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] <= 0x9f)
            *at++ = '?';
        else if (*at >= ' ' && *at != 0x7f)
            continue;
        *at = '?';
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

void elf_say_json(FILE *to, const char *text)
{
    fputc('"', to);
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0';) {
        const size_t length = gs_utf8_length(p);

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

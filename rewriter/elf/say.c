/* SPDX-License-Identifier: Apache-2.0
 *
 * say.c: see say.h. No state, any thread.
 */
#include "rewriter/elf/say.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void elf_say_clean(char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            *text = '?';
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

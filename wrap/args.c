/* SPDX-License-Identifier: Apache-2.0
 *
 * args.c: owns lists of command line words. Invariant: item[count] is NULL once anything was
 * pushed, so that item can be handed to exec. No global state; one list belongs to one thread.
 */
#include "wrap/args.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fd.h"

/* longer response files are refused: no compiler's own limit is lower than ARG_MAX, and no real
 * file is so long */
#define RESPONSE_MAX ((off_t)64 << 20)

void gs_args_deinit(struct gs_args *args)
{
    if (args == NULL)
        return;
    for (size_t i = 0; i < args->count; i++)
        free(args->item[i]);
    free(args->item);
    *args = (struct gs_args){0};
}

static int push_owned(struct gs_args *args, char *word)
{
    if (args->count + 1 >= args->capacity) {
        size_t capacity = args->capacity != 0 ? 2 * args->capacity : 32;
        char **item = reallocarray(args->item, capacity, sizeof *item);

        if (item == NULL) {
            free(word);
            return -ENOMEM;
        }
        args->item = item;
        args->capacity = capacity;
    }
    args->item[args->count++] = word;
    args->item[args->count] = NULL;
    return 0;
}

int gs_args_push(struct gs_args *args, const char *format, ...)
{
    va_list ap;
    char *word;
    int length;

    va_start(ap, format);
    length = vasprintf(&word, format, ap);
    va_end(ap);
    return length < 0 ? -ENOMEM : push_owned(args, word);
}

/* Copies one word from *text to word and moves *text behind it. */
static void copy_word(const char **text, char *word)
{
    const char *p = *text;
    char quote = '\0';

    for (; *p != '\0' && (quote != '\0' || strchr(" \t\r\n\f\v", *p) == NULL); p++) {
        if (*p == quote) {
            quote = '\0';
        } else if (quote == '\0' && (*p == '\'' || *p == '"')) {
            quote = *p;
        } else {
            if (*p == '\\' && quote != '\'' && p[1] != '\0')
                p++;
            *word++ = *p;
        }
    }
    *word = '\0';
    *text = p;
}

int gs_args_split(struct gs_args *args, const char *text)
{
    char *scratch = malloc(strlen(text) + 1); /* no word is longer than the text */
    int r = scratch != NULL ? 0 : -ENOMEM;

    while (r == 0 && *(text += strspn(text, " \t\r\n\f\v")) != '\0') {
        copy_word(&text, scratch);
        r = gs_args_push(args, "%s", scratch);
    }
    free(scratch);
    return r;
}

int gs_args_read(struct gs_args *args, const char *path, struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    GS_FREE char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? -ENOENT
                   : gs_err_errno(err, -errno, "response file %s", path);
    if (fstat(fd, &st) != 0)
        return gs_err_errno(err, -errno, "response file %s", path);
    if (!S_ISREG(st.st_mode)) /* a pipe could be read only once, and the compiler wants it */
        return gs_err_set(err, -EINVAL,
                          "response file %s is not a regular file; write the options into a "
                          "regular file",
                          path);
    if (st.st_size > RESPONSE_MAX)
        return gs_err_set(err, -EFBIG, "response file %s is longer than 64 MiB", path);
    text = malloc((size_t)st.st_size + 1);
    n = text != NULL ? gs_fd_read(fd, text, (size_t)st.st_size) : -ENOMEM;
    if (n < 0)
        return gs_err_errno(err, (int)n, "response file %s", path);
    text[n] = '\0';
    return gs_args_split(args, text);
}

void gs_args_print(const struct gs_args *args, FILE *out)
{
    for (size_t i = 0; i < args->count; i++) {
        const char *word = args->item[i];
        bool plain = *word != '\0' &&
                     word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789_@%+=:,./-")] == '\0';

        if (i != 0)
            fputc(' ', out);
        if (plain) {
            fputs(word, out);
            continue;
        }
        fputc('\'', out);
        for (const char *p = word; *p != '\0'; p++) {
            if (*p == '\'')
                fputs("'\\''", out);
            else
                fputc(*p, out);
        }
        fputc('\'', out);
    }
    fputc('\n', out);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c: rewrites lines of a wheel's RECORD.
 *
 * A line is "path,sha256=<base64url without padding>,<size>" with the path relative to the
 * folder of the .dist-info folder. Lines that are not understood stay as they are. No state,
 * any thread.
 */
#include "rewriter/tree/record.h"
#include "rewriter/output/output.h"
#include "rewriter/elf/sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RECORD ((off_t)256 << 20) /* bytes */
#define HASH       "sha256="

static int sum_file(const char *path, uint8_t digest[ELF_SHA256_SIZE], uint64_t *size,
                    struct gs_err *err)
{
    uint8_t buffer[1 << 16];
    struct elf_sha256 sha;
    int fd = open(path, O_RDONLY | O_CLOEXEC), ret = 0;
    ssize_t n = 0;

    if (fd < 0)
        return gs_err_errno(err, -errno, "%s: cannot open", path);
    elf_sha256_init(&sha);
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        elf_sha256_update(&sha, buffer, (size_t)n);
    if (n < 0)
        ret = gs_err_errno(err, -errno, "%s: cannot read", path);
    close(fd);
    *size = sha.length;
    elf_sha256_final(&sha, digest);
    return ret;
}

/* 32 bytes as 43 characters and a NUL. */
static void base64url(const uint8_t digest[ELF_SHA256_SIZE], char text[44])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint32_t bits = 0;
    size_t held = 0, at = 0;

    for (size_t i = 0; i < ELF_SHA256_SIZE; i++) {
        bits = bits << 8 | digest[i];
        for (held += 8; held >= 6; held -= 6)
            text[at++] = letters[bits >> (held - 6) & 63];
    }
    text[at++] = letters[bits << (6 - held) & 63];
    text[at] = '\0';
}

/* Takes the path of a line (quoted when it has a comma) into `path`; the offset of the comma
 * behind it, or 0. */
static size_t line_path(const char *line, size_t length, char *path, size_t room)
{
    size_t i = 0, n = 0;
    bool quoted = length > 0 && line[0] == '"';

    for (i = quoted ? 1 : 0; i < length; i++) {
        if (quoted && line[i] == '"') {
            if (i + 1 >= length || line[i + 1] != '"')
                break;
            i++;
        } else if (!quoted && line[i] == ',') {
            break;
        }
        if (n + 1 >= room)
            return 0;
        path[n++] = line[i];
    }
    path[n] = '\0';
    i += quoted;
    return i < length && line[i] == ',' ? i : 0;
}

static int compare(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

/* Whether a listed path is one of the changed files; `real` gets its path. */
static bool is_changed(const char *root, const char *listed, const struct elf_paths *changed,
                       char real[PATH_MAX])
{
    const char *base = strrchr(listed, '/');
    char joined[PATH_MAX];
    bool known = false;

    base = base != NULL ? base + 1 : listed;
    for (size_t i = 0; !known && i < changed->count; i++) /* realpath only where it can match */
        known = strcmp(strrchr(changed->list[i], '/') + 1, base) == 0;
    if (!known || snprintf(joined, sizeof joined, "%s%s%s", *listed == '/' ? "" : root,
                           *listed == '/' ? "" : "/", listed) >= (int)sizeof joined)
        return false;
    return realpath(joined, real) != NULL &&
           bsearch(real, changed->list, changed->count, sizeof *changed->list, compare) != NULL;
}

static int write_line(FILE *to, const char *line, size_t length, const char *root,
                      const struct elf_paths *changed, size_t *lines, struct gs_err *err)
{
    char listed[PATH_MAX], real[PATH_MAX], text[44], now[96];
    size_t comma = line_path(line, length, listed, sizeof listed);
    uint8_t digest[ELF_SHA256_SIZE] = {0};
    uint64_t size = 0;
    int ret;

    if (comma == 0 || length - comma - 1 < sizeof HASH - 1 ||
        memcmp(line + comma + 1, HASH, sizeof HASH - 1) != 0 ||
        !is_changed(root, listed, changed, real)) {
        fwrite(line, 1, length, to);
        return 0;
    }
    ret = sum_file(real, digest, &size, err);
    if (ret != 0)
        return ret;
    base64url(digest, text);
    snprintf(now, sizeof now, HASH "%s,%llu%s", text, (unsigned long long)size,
             line[length - 1] == '\r' ? "\r" : "");
    fwrite(line, 1, comma + 1, to);
    fputs(now, to);
    *lines +=
        strlen(now) != length - comma - 1 || memcmp(line + comma + 1, now, strlen(now)) != 0;
    return 0;
}

/* Bytes of the first line of text; a path in quotes may hold newlines. */
static size_t line_length(const char *text, size_t size)
{
    const char *newline = NULL;
    size_t at = 0;

    if (*text == '"') {
        for (at = 1; at < size && (text[at] != '"' || (at + 1 < size && text[at + 1] == '"'));
             at++)
            at += text[at] == '"';
        if (at >= size) /* a quote that is never closed */
            at = 0;
    }
    newline = memchr(text + at, '\n', size - at);
    return newline != NULL ? (size_t)(newline - text) : size;
}

static int write_lines(FILE *to, const char *text, size_t size, const char *root,
                       const struct elf_paths *changed, size_t *lines, struct gs_err *err)
{
    int ret = 0;

    for (size_t at = 0; ret == 0 && at < size;) {
        size_t length = line_length(text + at, size - at);
        bool newline = length < size - at;

        ret = length > 0 ? write_line(to, text + at, length, root, changed, lines, err) : 0;
        if (newline)
            fputc('\n', to);
        at += length + newline;
    }
    return ret;
}

/* The new content, or NULL with err filled. */
static char *make_text(int fd, const struct stat *st, const char *path,
                       const struct elf_paths *changed, size_t *size, size_t *lines,
                       struct gs_err *err)
{
    struct elf_source source = {.name = path, .fd = fd, .size = (uint64_t)st->st_size};
    char root[PATH_MAX], *text = NULL, *old;
    FILE *to = open_memstream(&text, size);
    int ret = to == NULL ? gs_err_set(err, -ENOMEM, "%s: no memory", path) : 0;

    snprintf(root, sizeof root, "%s", path);
    for (int i = 0; i < 2 && strrchr(root, '/') != NULL; i++) /* RECORD, NAME.dist-info */
        *strrchr(root, '/') = '\0';
    old = elf_source_load(&source, 0, source.size, err);
    if (ret == 0 && old != NULL)
        ret = write_lines(to, old, (size_t)source.size, root, changed, lines, err);
    if (to != NULL && fclose(to) != 0 && ret == 0)
        ret = gs_err_set(err, -ENOMEM, "%s: no memory", path);
    if (ret != 0 || old == NULL) {
        free(text);
        text = NULL;
    }
    free(old);
    return text;
}

static int replace(int fd, const struct stat *st, const char *path, const char *text,
                   size_t size, struct gs_err *err)
{
    struct elf_output output;
    int ret = elf_output_open(&output, path, err);

    if (ret != 0)
        return ret;
    ret = elf_output_write(&output, 0, text, size, err);
    ret = ret ?: elf_output_attributes(&output, fd, true, err);
    ret = ret ?: elf_output_commit(&output, st, true, err);
    elf_output_deinit(&output);
    return ret;
}

int elf_record_update(const char *path, const struct elf_paths *changed, size_t *lines,
                      struct gs_err *err)
{
    size_t size = 0, here = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), ret = 0;
    struct stat st;
    char *text;

    if (fd < 0)
        return gs_err_errno(err, -errno, "%s: cannot open", path);
    if (fstat(fd, &st) != 0 || st.st_size > MAX_RECORD) {
        close(fd);
        return gs_err_set(err, -EFBIG, "%s: is too large for a list of files", path);
    }
    text = make_text(fd, &st, path, changed, &size, &here, err);
    if (text == NULL)
        ret = -EIO;
    else if (here > 0)
        ret = replace(fd, &st, path, text, size, err);
    if (ret == 0)
        *lines += here;
    free(text);
    close(fd);
    return ret;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * record.c: rewrites lines of a wheel's RECORD.
 *
 * A line is "path,sha256=<base64url without padding>,<size>" with the path relative to the
 * folder of the .dist-info folder. Lines that are not understood stay as they are. No state,
 * any thread.
 */
#include "rewriter/tree/record.h"
#include "common/fd.h"
#include "common/same.h"
#include "rewriter/output/output.h"
#include "rewriter/elf/say.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_RECORD ((off_t)256 << 20) /* bytes */
#define HASH       "sha256="
#define MAX_ROUNDS 16 /* of wheels in wheels; deeper wheels list each other */

struct update {
    const struct elf_root *root;
    const struct elf_paths *changed;
    char folder[PATH_MAX]; /* that the listed paths start from */
    const char *path;      /* of the RECORD */
    size_t lines;          /* that were wrong */
    bool lists;            /* one of the changed files */
};

static int open_below(const struct elf_root *root, const char *path, struct elf_entry *entry,
                      struct gs_err *err)
{
    int fd = elf_entry_open(entry, root, path, err);

    if (fd != 0)
        return fd;
    fd = openat(entry->folder, entry->base, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    return fd >= 0 ? fd : gs_err_errno(err, -errno, "%s: cannot open", path);
}

static int sum_file(const struct elf_root *root, const char *path,
                    uint8_t digest[ELF_SHA256_SIZE], uint64_t *size, struct gs_err *err)
{
    uint8_t buffer[1 << 16];
    struct elf_sha256 sha;
    struct elf_entry entry;
    GS_CLOSE_FD int fd = open_below(root, path, &entry, err);
    ssize_t n = 0;

    elf_entry_close(&entry);
    if (fd < 0)
        return fd;
    elf_sha256_init(&sha);
    while ((n = read(fd, buffer, sizeof buffer)) > 0)
        elf_sha256_update(&sha, buffer, (size_t)n);
    *size = sha.length;
    elf_sha256_final(&sha, digest);
    return n == 0 ? 0 : gs_err_errno(err, -errno, "%s: cannot read", path);
}

/* 32 bytes as 43 characters and a NUL. */
static void write_base64url(const uint8_t digest[ELF_SHA256_SIZE], char text[44])
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

/* Copies the path of a line (quoted if it has a comma) into `path`; returns the offset of the
 * comma behind it, or 0. */
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

static int compare_line(const void *key, const void *element)
{
    return strcmp(key, *(const char *const *)element);
}

/* Whether a listed path is one of the changed files; `real` gets its path. */
static bool is_changed(const struct update *update, const char *listed, char real[PATH_MAX])
{
    const struct elf_paths *changed = update->changed;
    const char *base = basename(listed);
    char joined[PATH_MAX];
    bool known = false;

    for (size_t i = 0; !known && i < changed->count; i++) /* realpath only if it can match */
        known = strcmp(strrchr(changed->list[i], '/') + 1, base) == 0;
    if (!known ||
        snprintf(joined, sizeof joined, "%s%s%s", *listed == '/' ? "" : update->folder,
                 *listed == '/' ? "" : "/", listed) >= (int)sizeof joined)
        return false;
    return realpath(joined, real) != NULL && strcmp(real, update->path) != 0 &&
           bsearch(real, changed->list, changed->count, sizeof *changed->list, compare_line) !=
               NULL;
}

static int write_line(FILE *to, const char *line, size_t length, struct update *update,
                      struct gs_err *err)
{
    char listed[PATH_MAX], real[PATH_MAX], text[44], now[96];
    size_t comma = line_path(line, length, listed, sizeof listed);
    uint8_t digest[ELF_SHA256_SIZE] = {0};
    uint64_t size = 0;
    int ret;

    if (comma == 0 || length - comma - 1 < sizeof HASH - 1 ||
        memcmp(line + comma + 1, HASH, sizeof HASH - 1) != 0 ||
        !is_changed(update, listed, real)) {
        fwrite(line, 1, length, to);
        return 0;
    }
    ret = sum_file(update->root, real, digest, &size, err);
    if (ret != 0)
        return ret;
    update->lists = true;
    write_base64url(digest, text);
    snprintf(now, sizeof now, HASH "%s,%llu%s", text, (unsigned long long)size,
             line[length - 1] == '\r' ? "\r" : "");
    fwrite(line, 1, comma + 1, to);
    fputs(now, to);
    update->lines +=
        strlen(now) != length - comma - 1 || memcmp(line + comma + 1, now, strlen(now)) != 0;
    return 0;
}

/* Bytes of the first line of text; a path in quotes may contain newlines. */
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

static int write_lines(FILE *to, const char *text, size_t size, struct update *update,
                       struct gs_err *err)
{
    int ret = 0;

    for (size_t at = 0; ret == 0 && at < size;) {
        size_t length = line_length(text + at, size - at);
        bool newline = length < size - at;

        ret = length > 0 ? write_line(to, text + at, length, update, err) : 0;
        if (newline)
            fputc('\n', to);
        at += length + newline;
    }
    return ret;
}

/* The new content, or NULL with err filled. */
static char *make_text(int fd, const struct stat *st, const char *path, size_t *size,
                       struct update *update, struct gs_err *err)
{
    struct elf_source source = {.name = path, .fd = fd, .size = (uint64_t)st->st_size};
    char *text = NULL;
    GS_FREE char *old = NULL;
    FILE *to = open_memstream(&text, size);
    int ret = to == NULL ? gs_err_set(err, -ENOMEM, "%s: no memory", path) : 0;

    snprintf(update->folder, sizeof update->folder, "%s", path);
    gs_cut_parts(update->folder, 2); /* RECORD, NAME.dist-info */
    old = elf_source_load(&source, 0, source.size, err);
    if (ret == 0 && old != NULL)
        ret = write_lines(to, old, (size_t)source.size, update, err);
    if (to != NULL && fclose(to) != 0 && ret == 0)
        ret = gs_err_set(err, -ENOMEM, "%s: no memory", path);
    if (ret == 0 && old != NULL)
        return text;
    free(text);
    return NULL;
}

static int replace_record(int fd, const struct stat *st, const struct elf_entry *entry,
                          const char *path, const char *text, size_t size, struct gs_err *err)
{
    struct elf_output output;
    int ret = elf_output_open(&output, entry, path, err);

    if (ret != 0)
        return ret;
    ret = elf_output_write(&output, 0, text, size, err);
    ret = ret ?: elf_output_attributes(&output, fd, true, NULL, err);
    ret = ret ?: elf_output_commit(&output, st, true, err);
    elf_output_deinit(&output);
    return ret;
}

/* `lists` gets whether the record lists any of the changed files. */
static int update_one(struct update *update, const char *path, bool *lists, struct gs_err *err)
{
    struct elf_entry entry;
    GS_CLOSE_FD int fd = open_below(update->root, path, &entry, err);
    size_t size = 0, before = update->lines;
    GS_FREE char *text = NULL;
    struct stat st;
    int ret = fd < 0 ? fd : 0;

    update->path = path;
    update->lists = false;
    if (ret == 0 && (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size > MAX_RECORD))
        ret = gs_err_set(err, -EFBIG, "%s: is too large for a list of files", path);
    if (ret == 0) {
        text = make_text(fd, &st, path, &size, update, err);
        ret = text == NULL ? -EIO : 0;
    }
    if (ret == 0 && update->lines > before)
        ret = replace_record(fd, &st, &entry, path, text, size, err);
    if (ret != 0)
        update->lines = before;
    *lists = ret == 0 && update->lists;
    elf_entry_close(&entry);
    return ret;
}

/* Updates the records that list the files in update->changed, and lists those records in
 * `next`. A record that cannot be changed stops no other. */
static int update_round(struct update *update, const struct elf_paths *records,
                        struct elf_paths *next, bool *failed)
{
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < records->count; i++) {
        struct gs_err err = {0};
        bool lists;

        if (update_one(update, records->list[i], &lists, &err) != 0) {
            elf_say(stderr, "gpushare-patch: %s\n", err.text);
            *failed = true;
        }
        if (lists)
            ret = elf_paths_add(next, records->list[i]);
    }
    return ret;
}

/* A wheel that contains another wheel lists its RECORD as well, so each round changes files
 * that the next round has to look for. A record that is right already counts, too: the run
 * that changed it may have died before the next record. */
int elf_record_update(const struct elf_root *root, const struct elf_paths *records,
                      const struct elf_paths *changed, size_t *lines, bool *failed)
{
    struct update update = {.root = root, .changed = changed};
    struct elf_paths now = {0}, next;
    int ret = 0;

    for (int round = 0; ret == 0 && update.changed->count > 0; round++) {
        if (round == MAX_ROUNDS) {
            elf_say(stderr,
                    "gpushare-patch: %s: this and other wheel records list each other, so "
                    "their hashes cannot all be right\n",
                    now.list[0]);
            *failed = true;
            break;
        }
        next = (struct elf_paths){0};
        ret = update_round(&update, records, &next, failed);
        elf_paths_deinit(&now);
        now = next;
        update.changed = &now;
    }
    elf_paths_deinit(&now);
    *lines = update.lines;
    return ret;
}

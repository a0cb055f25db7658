/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.c: reads and writes the list of files that were patched below a folder.
 *
 * Owns the entries. The file may have been edited by others: paths that lead out of the folder
 * are refused. No state, any thread.
 */
#include "rewriter/tree/manifest.h"
#include "common/fd.h"
#include "common/same.h"
#include "rewriter/elf/grow.h"
#include "rewriter/elf/say.h"
#include "rewriter/output/output.h"

#include <fcntl.h>
#include <search.h>

#define HEAD "gpushare-manifest 1"

static int compare_entries(const void *a, const void *b)
{
    return strcmp(a, b);
}

static int append_entry(struct elf_manifest *manifest, char *path, char *target)
{
    struct elf_manifest_entry *list =
        elf_grow(manifest->entries, manifest->count, &manifest->room, sizeof *list);

    if (list == NULL)
        return -ENOMEM;
    manifest->entries = list;
    if (tsearch(path, &manifest->paths, compare_entries) == NULL)
        return -ENOMEM;
    manifest->entries[manifest->count++] =
        (struct elf_manifest_entry){.path = path, .target = target};
    return 0;
}

int elf_manifest_add(struct elf_manifest *manifest, const char *path, const char *target)
{
    char *path_copy, *target_copy;

    if (elf_manifest_has(manifest, path))
        return 0;
    path_copy = strdup(path);
    target_copy = target != NULL ? strdup(target) : NULL;
    if (path_copy != NULL && (target == NULL || target_copy != NULL) &&
        append_entry(manifest, path_copy, target_copy) == 0)
        return 0;
    free(path_copy);
    free(target_copy);
    return -ENOMEM;
}

bool elf_manifest_has(const struct elf_manifest *manifest, const char *path)
{
    return tfind(path, &manifest->paths, compare_entries) != NULL;
}

static void keep_path(void *path)
{
    (void)path; /* the entry's */
}

void elf_manifest_deinit(struct elf_manifest *manifest)
{
    tdestroy(manifest->paths, keep_path);
    for (size_t i = 0; i < manifest->count; i++) {
        free(manifest->entries[i].path);
        free(manifest->entries[i].target);
    }
    free(manifest->entries);
    *manifest = (struct elf_manifest){0};
}

static bool leads_out(const char *path)
{
    size_t length;

    if (*path == '/' || *path == '\0')
        return true;
    for (; *path != '\0'; path += length + (path[length] == '/')) {
        length = strcspn(path, "/");
        if (length == 2 && memcmp(path, "..", 2) == 0)
            return true;
    }
    return false;
}

static bool read_line(struct elf_manifest *manifest, char *line)
{
    char *rest = NULL, *kind = strtok_r(line, " ", &rest), *path = strtok_r(NULL, " ", &rest);
    char *target = strtok_r(NULL, " ", &rest);
    bool link = kind != NULL && strcmp(kind, "link") == 0;

    if (kind == NULL || path == NULL || (!link && strcmp(kind, "file") != 0) ||
        link != (target != NULL) || strtok_r(NULL, " ", &rest) != NULL ||
        !elf_path_decode(path) || (target != NULL && !elf_path_decode(target)) ||
        leads_out(path))
        return false;
    return elf_manifest_add(manifest, path, target) == 0;
}

static int read_lines(struct elf_manifest *manifest, FILE *from, const char *name,
                      struct gs_err *err)
{
    char *line = NULL;
    size_t room = 0, number = 0;
    ssize_t n;
    int ret = 0;

    while (ret == 0 && (n = getline(&line, &room, from)) > 0) {
        number++;
        if (line[n - 1] == '\n')
            line[n - 1] = '\0';
        if (number == 1 ? strcmp(line, HEAD) != 0 : !read_line(manifest, line))
            ret = gs_err_set(err, -EINVAL, "%s: line %zu is not valid; correct or remove it",
                             name, number);
    }
    if (ret == 0 && ferror(from))
        ret = gs_err_errno(err, -EIO, "%s: cannot read", name);
    free(line);
    return ret;
}

/* Opens regular files only. A user with write access to the folder may have put a pipe there,
 * which would never end. */
static FILE *open_regular(const struct elf_root *root, const char *path, struct gs_err *err)
{
    int fd = openat(root->fd, ELF_MANIFEST_NAME,
                    O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY);
    FILE *from = NULL;
    struct stat st;

    if (fd < 0 && errno == ENOENT)
        return NULL;
    if (fd < 0 || fstat(fd, &st) != 0)
        gs_err_errno(err, -errno, "%s: cannot open", path);
    else if (!S_ISREG(st.st_mode))
        gs_err_set(err, -EINVAL, "%s: is not a regular file; remove it", path);
    else if ((from = fdopen(fd, "r")) == NULL)
        gs_err_errno(err, -errno, "%s: cannot read", path);
    if (from == NULL && fd >= 0)
        close(fd);
    return from;
}

int elf_manifest_read(struct elf_manifest *manifest, const struct elf_root *root,
                      struct gs_err *err)
{
    struct gs_err problem = {0};
    char path[PATH_MAX];
    FILE *from;
    int ret;

    *manifest = (struct elf_manifest){0};
    if (snprintf(path, sizeof path, "%s/%s", root->path, ELF_MANIFEST_NAME) >= (int)sizeof path)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", root->path);
    from = open_regular(root, path, &problem);
    if (from == NULL)
        return problem.code != 0 ? gs_err_set(err, problem.code, "%s", problem.text) : 0;
    ret = read_lines(manifest, from, path, err);
    fclose(from);
    return ret;
}

static char *make_text(const struct elf_manifest *manifest, size_t *size)
{
    char *text = NULL;
    FILE *to = open_memstream(&text, size);

    if (to == NULL)
        return NULL;
    fputs(HEAD "\n", to);
    gs_each (entry, manifest->entries, manifest->count) {
        fputs(entry->target != NULL ? "link " : "file ", to);
        elf_path_encode(to, entry->path);
        if (entry->target != NULL) {
            fputc(' ', to);
            elf_path_encode(to, entry->target);
        }
        fputc('\n', to);
    }
    if (fclose(to) == 0)
        return text;
    free(text);
    return NULL;
}

int elf_manifest_write(const struct elf_manifest *manifest, const struct elf_root *root,
                       struct gs_err *err)
{
    const struct elf_entry entry = {.folder = root->fd, .base = ELF_MANIFEST_NAME};
    char path[PATH_MAX], *text;
    struct elf_output output;
    size_t size = 0;
    int ret;

    if (snprintf(path, sizeof path, "%s/%s", root->path, ELF_MANIFEST_NAME) >= (int)sizeof path)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", root->path);
    if (manifest->count == 0)
        return unlinkat(root->fd, ELF_MANIFEST_NAME, 0) == 0 || errno == ENOENT
                   ? 0
                   : gs_err_errno(err, -errno, "%s: cannot remove", path);
    text = make_text(manifest, &size);
    if (text == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", path);
    ret = elf_output_open(&output, &entry, path, err);
    if (ret == 0) {
        ret = elf_output_write(&output, 0, text, size, err);
        if (ret == 0 && fchmod(output.fd, 0644) != 0)
            ret = gs_err_errno(err, -errno, "%s: cannot set the mode", path);
        ret = ret ?: elf_output_commit(&output, NULL, true, err);
        elf_output_deinit(&output);
    }
    free(text);
    return ret;
}

/* Rewrites lines of a wheel's RECORD. A line is "path,sha256=<base64url without padding>,<size>"
 * with the path relative to the folder of the .dist-info folder. Lines that are not understood
 * stay as they are. No state, any thread. */

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
static char *make_record(int fd, const struct stat *st, const char *path, size_t *size,
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
        text = make_record(fd, &st, path, &size, update, err);
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

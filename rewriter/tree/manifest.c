/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.c: reads and writes the list of files that were patched below a folder.
 *
 * Owns the entries. The file may have been edited by others: paths that lead out of the folder
 * are refused. No state, any thread.
 */
#include "rewriter/tree/manifest.h"
#include "rewriter/output/registry.h"
#include "rewriter/elf/grow.h"
#include "rewriter/output/output.h"

#include <errno.h>
#include <fcntl.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    for (size_t i = 0; i < manifest->count; i++) {
        const struct elf_manifest_entry *entry = &manifest->entries[i];

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

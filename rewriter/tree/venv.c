/* SPDX-License-Identifier: Apache-2.0
 *
 * venv.c: replaces interpreter links by patched copies, and puts them back.
 *
 * Each step is one rename: at every moment there is the link or the complete copy. No state;
 * called by one thread.
 */
#include "rewriter/tree/venv.h"
#include "rewriter/job/act.h"
#include "rewriter/elf/say.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_python_name(const char *name)
{
    return strncmp(name, "python", 6) == 0 &&
           strspn(name + 6, "0123456789.") == strlen(name + 6);
}

static int add_link(const char *folder, const char *name, struct elf_manifest *manifest)
{
    char path[PATH_MAX], below[PATH_MAX], target[PATH_MAX];
    ssize_t n;

    if (snprintf(below, sizeof below, "bin/%s", name) >= (int)sizeof below ||
        snprintf(path, sizeof path, "%s/%s", folder, below) >= (int)sizeof path)
        return -ENAMETOOLONG;
    n = readlink(path, target, sizeof target - 1);
    if (n < 0) /* no link: the walk saw it */
        return 0;
    target[n] = '\0';
    if (strchr(target, '/') == NULL) /* python -> python3 */
        return 0;
    return elf_manifest_add(manifest, below, target);
}

int elf_venv_links(const char *folder, struct elf_manifest *manifest, size_t *count,
                   struct gs_err *err)
{
    char path[PATH_MAX];
    struct dirent *entry;
    DIR *bin;
    int ret = 0;

    *count = 0;
    if (snprintf(path, sizeof path, "%s/bin", folder) >= (int)sizeof path)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", folder);
    bin = opendir(path);
    if (bin == NULL)
        return gs_err_errno(err, -errno, "%s: cannot open", path);
    while (ret == 0 && (entry = readdir(bin)) != NULL)
        if (is_python_name(entry->d_name))
            ret = add_link(folder, entry->d_name, manifest);
    closedir(bin);
    if (ret != 0)
        return gs_err_errno(err, ret, "%s: cannot list the interpreters", path);
    for (size_t i = 0; i < manifest->count; i++)
        *count += manifest->entries[i].target != NULL;
    return 0;
}

/* Full paths of the link and of what it leads to. */
static int resolve(const char *folder, const struct elf_manifest_entry *entry,
                   char link[PATH_MAX], char target[PATH_MAX], struct gs_err *err)
{
    char joined[PATH_MAX];
    int n;

    if (snprintf(link, PATH_MAX, "%s/%s", folder, entry->path) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", entry->path);
    if (*entry->target == '/')
        n = snprintf(joined, sizeof joined, "%s", entry->target);
    else
        n = snprintf(joined, sizeof joined, "%.*s/%s", (int)(strrchr(link, '/') - link), link,
                     entry->target);
    if (n >= (int)sizeof joined)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", entry->target);
    if (realpath(joined, target) == NULL)
        return gs_err_errno(err, -errno, "%s: its interpreter %s cannot be opened", link,
                            entry->target);
    return 0;
}

/* Whether the patched copy was made from the interpreter as it is now, patched itself or not.
 */
static bool is_current(const char *copy, const char *target)
{
    static const struct elf_options none = {0};
    struct elf_job a, b;
    struct elf_sums sums;
    uint8_t whole[ELF_CHECKSUM_SIZE], image[ELF_CHECKSUM_SIZE], buffer[1 << 16];
    const struct elf_undo_head *head = &a.note.head;
    bool same = elf_job_open(&a, copy, &none, NULL) == 0 && a.patched == ELF_NOTE_FOUND;
    ssize_t n = 0;

    same = elf_job_open(&b, target, &none, NULL) == 0 && same;
    if (same && b.patched == ELF_NOTE_FOUND) {
        same =
            memcmp(b.note.head.original_checksum, head->original_checksum, sizeof whole) == 0;
    } else if (same) {
        elf_sums_init(&sums, head->image_end);
        while ((n = read(b.fd, buffer, sizeof buffer)) > 0)
            elf_sums_update(&sums, buffer, (size_t)n);
        elf_sums_final(&sums, whole, image);
        same = n == 0 && memcmp(whole, head->original_checksum, sizeof whole) == 0;
    }
    elf_job_deinit(&a);
    elf_job_deinit(&b);
    return same;
}

/* Whether the copy is such as these options would make it. */
static bool is_done(const char *copy, const char *target, const struct elf_options *options)
{
    struct elf_options in_place = *options;
    struct elf_job job;
    struct stat st;
    bool done;

    in_place.output = NULL;
    if (lstat(copy, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    done = elf_job_open(&job, copy, &in_place, NULL) == 0 && job.patched == ELF_NOTE_FOUND &&
           elf_job_read(&job, NULL) == 0 && elf_job_decide(&job, NULL) == 0 &&
           elf_job_is_current(&job);
    elf_job_deinit(&job);
    return done && is_current(copy, target);
}

static enum elf_exit patch_copy(const char *link, const char *target,
                                const struct elf_options *options)
{
    struct elf_options copy = *options;
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(target, '/') - target), target);
    copy.origin = folder;
    copy.any = true;
    if (!options->print && is_done(link, target, &copy)) {
        if (!options->quiet)
            elf_say(stdout, "%s: already patched\n", link);
        return ELF_EXIT_DONE;
    }
    copy.output = options->print ? NULL : link; /* renamed over the link itself */
    return elf_act(target, &copy, stdout, stderr, NULL);
}

enum elf_exit elf_venv_patch(const char *folder, const struct elf_manifest *manifest,
                             const struct elf_options *options)
{
    enum elf_exit result = ELF_EXIT_DONE;

    for (size_t i = 0; i < manifest->count; i++) {
        const struct elf_manifest_entry *entry = &manifest->entries[i];
        char link[PATH_MAX], target[PATH_MAX];
        struct gs_err err = {0};

        if (entry->target == NULL)
            continue;
        if (resolve(folder, entry, link, target, &err) != 0) {
            fprintf(stderr, "gpushare-patch: %s\n", err.text);
            result = elf_exit_graver(result, ELF_EXIT_FAILED);
            continue;
        }
        result = elf_exit_graver(result, patch_copy(link, target, options));
    }
    return result;
}

static int put_back(const char *link, const char *target, struct gs_err *err)
{
    char temporary[PATH_MAX];

    if (snprintf(temporary, sizeof temporary, "%.*s/.gpushare-link.%d",
                 (int)(strrchr(link, '/') - link), link,
                 (int)getpid()) >= (int)sizeof temporary)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", link);
    if (symlink(target, temporary) != 0)
        return gs_err_errno(err, -errno, "%s: cannot make the link", link);
    if (rename(temporary, link) == 0)
        return 0;
    gs_err_errno(err, -errno, "%s: cannot put the link back", link);
    unlink(temporary);
    return err->code;
}

/* What is there may be somebody else's by now: only our copy gives way to the link. */
static bool is_ours(const char *path)
{
    static const struct elf_options none = {0};
    struct elf_job job;
    struct stat st;
    bool ours = lstat(path, &st) == 0 && S_ISREG(st.st_mode);

    if (ours) {
        ours = elf_job_open(&job, path, &none, NULL) == 0 && job.patched == ELF_NOTE_FOUND;
        elf_job_deinit(&job);
    }
    return ours;
}

int elf_venv_restore(const char *folder, const struct elf_manifest *manifest,
                     const struct elf_options *options, struct gs_err *err)
{
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < manifest->count; i++) {
        const struct elf_manifest_entry *entry = &manifest->entries[i];
        char link[PATH_MAX];

        if (entry->target == NULL)
            continue;
        if (snprintf(link, sizeof link, "%s/%s", folder, entry->path) >= (int)sizeof link)
            return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", entry->path);
        if (!is_ours(link)) {
            if (!options->quiet)
                elf_say(stdout, "%s: is no patched copy any more; left as it is\n", link);
            continue;
        }
        ret = put_back(link, entry->target, err);
        if (ret == 0 && !options->quiet)
            elf_say(stdout, "%s: links to %s again\n", link, entry->target);
    }
    return ret;
}

bool elf_venv_check(const char *folder, const struct elf_manifest *manifest)
{
    bool good = true;

    for (size_t i = 0; i < manifest->count; i++) {
        const struct elf_manifest_entry *entry = &manifest->entries[i];
        char link[PATH_MAX], target[PATH_MAX];
        struct gs_err err = {0};

        if (entry->target == NULL)
            continue;
        if (resolve(folder, entry, link, target, &err) != 0) {
            fprintf(stderr, "gpushare-patch: %s\n", err.text);
        } else if (!is_current(link, target)) {
            elf_say(stderr,
                    "gpushare-patch: %s: is no patched copy of %s as that is now (an "
                    "upgrade?); patch the environment again\n",
                    link, target);
        } else {
            continue;
        }
        good = false;
    }
    return good;
}

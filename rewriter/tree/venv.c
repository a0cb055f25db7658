/* SPDX-License-Identifier: Apache-2.0
 *
 * venv.c: replaces interpreter links by patched copies, and puts them back.
 *
 * An interpreter has several names in bin, links to the name that leaves the environment. They
 * become hard links to the copy: CPython 3.11 takes the file at the end of the links for the base
 * interpreter (Modules/getpath.py, "base_executable"), and the copy is none.
 *
 * Each step is one rename: at every moment there is the link or the complete copy. No state;
 * called by one thread.
 */
#include "rewriter/tree/venv.h"
#include "common/fd.h"
#include "common/same.h"
#include "rewriter/output/output.h"
#include "rewriter/elf/say.h"

#include <dirent.h>
#include <fcntl.h>

#define MAX_LINKS 40 /* as many as the kernel follows */

/* Reads the link at `path` in the environment. Its length; -errno, -EINVAL if it is none. */
static int read_link(const struct elf_root *root, const char *path, char target[PATH_MAX])
{
    struct elf_entry entry;
    int ret = elf_entry_open(&entry, root, path, NULL);
    ssize_t n = ret == 0 ? readlinkat(entry.folder, entry.base, target, PATH_MAX - 1) : ret;

    if (ret == 0 && n < 0)
        n = -errno;
    elf_entry_close(&entry);
    target[n > 0 ? n : 0] = '\0';
    return (int)n;
}

/* Where the link leads, which may be another link. False: the path is too long. */
static bool join_target(const char *link, const char *target, char joined[PATH_MAX])
{
    return (*target == '/'
                ? snprintf(joined, PATH_MAX, "%s", target)
                : snprintf(joined, PATH_MAX, "%.*s/%s", (int)(strrchr(link, '/') - link), link,
                           target)) < PATH_MAX;
}

/* Finds the file to which a link leads, with its folder resolved, in `next`. False if that
 * folder cannot be resolved. */
static bool follow_link(const char *link, const char *target, char next[PATH_MAX])
{
    char joined[PATH_MAX], folder[PATH_MAX], *slash;

    if (!join_target(link, target, joined))
        return false;
    slash = strrchr(joined, '/');
    *slash = '\0';
    return realpath(slash > joined ? joined : "/", folder) != NULL &&
           snprintf(next, PATH_MAX, "%s/%s", strcmp(folder, "/") == 0 ? "" : folder,
                    slash + 1) < PATH_MAX;
}

/* Follows an interpreter from bin/name to the first link that leads out, and lists that
 * link. It may have any name (pypy3, graalpy, python3.13t): it is the interpreter because
 * python leads to it. The name is listed as well. */
static int add_link(const struct elf_root *root, const char *name,
                    struct elf_manifest *manifest)
{
    char link[PATH_MAX], target[PATH_MAX], next[PATH_MAX], first[PATH_MAX] = "";
    char start[PATH_MAX];
    int ret;

    if (snprintf(link, sizeof link, "%s/bin/%s", root->path, name) >= (int)sizeof link)
        return -ENAMETOOLONG;
    memcpy(start, link, sizeof start);
    for (int i = 0; i < MAX_LINKS && read_link(root, link, target) > 0; i++) {
        if (i == 0)
            memcpy(first, target, sizeof first);
        if (!follow_link(link, target, next) || elf_root_below(root, next) == NULL) {
            ret = elf_manifest_add(manifest, elf_root_below(root, link), target);
            return i == 0 ? ret
                          : ret ?: elf_manifest_add(manifest, elf_root_below(root, start), first);
        }
        memcpy(link, next, sizeof link);
    }
    return 0; /* a file in the environment, which the walk saw, or nothing */
}

int elf_venv_links(const struct elf_root *root, struct elf_manifest *manifest, size_t *count,
                   struct gs_err *err)
{
    int fd = elf_root_folder(root, "bin"), ret = 0;
    DIR *bin = fd >= 0 ? fdopendir(fd) : NULL;
    struct dirent *entry;

    *count = 0;
    if (bin == NULL)
        return gs_err_errno(err, fd < 0 ? fd : -errno, "%s/bin: cannot open", root->path);
    while (ret == 0 && (entry = readdir(bin)) != NULL)
        if (elf_environment_is_python(entry->d_name))
            ret = add_link(root, entry->d_name, manifest);
    closedir(bin);
    if (ret != 0)
        return gs_err_errno(err, ret, "%s/bin: cannot list the interpreters", root->path);
    for (size_t i = 0; i < manifest->count; i++)
        *count += manifest->entries[i].target != NULL;
    return 0;
}

/* Full paths of the link and of its target. */
static int resolve_link(const struct elf_root *root, const struct elf_manifest_entry *entry,
                        char link[PATH_MAX], char target[PATH_MAX], struct gs_err *err)
{
    char joined[PATH_MAX];

    if (snprintf(link, PATH_MAX, "%s/%s", root->path, entry->path) >= PATH_MAX)
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", entry->path);
    if (!join_target(link, entry->target, joined))
        return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", entry->target);
    if (realpath(joined, target) == NULL)
        return gs_err_errno(err, -errno, "%s: its interpreter %s cannot be opened", link,
                            entry->target);
    return 0;
}

/* Whether the listed link leads to another file of the environment, not out of it. */
static bool is_name(const struct elf_root *root, const struct elf_manifest_entry *entry)
{
    char link[PATH_MAX], next[PATH_MAX];

    return snprintf(link, sizeof link, "%s/%s", root->path, entry->path) < (int)sizeof link &&
           follow_link(link, entry->target, next) && elf_root_below(root, next) != NULL;
}

/* Whether the file (before it was patched, if it is) is the original that the note
 * describes. */
static bool is_original_of(const struct elf_job *job, const struct elf_note *note)
{
    struct elf_source source = elf_job_original(job);
    uint8_t whole[ELF_CHECKSUM_SIZE], image[ELF_CHECKSUM_SIZE], buffer[1 << 16];
    struct elf_sums sums;

    if (source.size != note->head.original_size)
        return false;
    elf_sums_init(&sums, note->head.image_end);
    for (uint64_t at = 0; at < source.size;) {
        size_t n =
            source.size - at < sizeof buffer ? (size_t)(source.size - at) : sizeof buffer;

        if (elf_source_read(&source, at, buffer, n, NULL) != 0)
            return false;
        elf_sums_update(&sums, buffer, n);
        at += n;
    }
    elf_sums_final(&sums, whole, image);
    return memcmp(whole, note->head.original_checksum, sizeof whole) == 0;
}

/* Whether the patched copy was made from the interpreter as it is now, patched itself or not.
 */
static bool is_current(const struct elf_root *root, const char *copy, const char *target)
{
    const struct elf_options inside = {.within.root = root}, none = {0};
    struct elf_job a, b;
    bool same = elf_job_open(&a, copy, &inside, NULL) == 0 && a.patched == ELF_NOTE_FOUND;

    same = elf_job_open(&b, target, &none, NULL) == 0 && same;
    if (same && b.patched == ELF_NOTE_FOUND)
        same = memcmp(b.note.head.original_checksum, a.note.head.original_checksum,
                      ELF_CHECKSUM_SIZE) == 0;
    else if (same)
        same = is_original_of(&b, &a.note);
    elf_job_deinit(&a);
    elf_job_deinit(&b);
    return same;
}

/* Whether these options would make the same copy. */
static bool is_done(const char *copy, const char *target, const struct elf_options *options)
{
    struct elf_job job;
    bool done;

    done = elf_job_open(&job, copy, options, NULL) == 0 && job.patched == ELF_NOTE_FOUND &&
           elf_job_read(&job, NULL) == 0 && elf_job_decide(&job, NULL) == 0 &&
           elf_job_is_current(&job);
    elf_job_deinit(&job);
    return done && is_current(options->within.root, copy, target);
}

static enum elf_exit patch_copy(const char *link, const char *target,
                                const struct elf_options *options)
{
    struct elf_options copy = *options;
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(target, '/') - target), target);
    copy.within.origin = folder;
    copy.any = true;
    if (!options->print && is_done(link, target, &copy)) {
        if (!options->quiet)
            elf_say(stdout, "%s: already patched\n", link);
        return ELF_EXIT_DONE;
    }
    copy.output = options->print ? NULL : link; /* renamed over the link itself */
    copy.within.output_root = options->within.root;
    copy.within.root = NULL; /* the interpreter may be anywhere */
    return elf_act(target, &copy, stdout, stderr, NULL);
}

/* resolve_link(), with a message on errors. */
static bool resolve_or_say(const struct elf_root *root, const struct elf_manifest_entry *entry,
                           char *link, char *target)
{
    struct gs_err err = {0};

    if (resolve_link(root, entry, link, target, &err) == 0)
        return true;
    elf_say(stderr, "gpushare-patch: %s\n", err.text);
    return false;
}

/* Makes the link another name of the copy. */
static enum elf_exit name_copy(const char *link, const char *copy,
                               const struct elf_options *options)
{
    struct elf_entry from = {.folder = -1}, to = {.folder = -1};
    struct elf_output output;
    struct gs_err err = {0};
    struct stat a, b;
    GS_CLOSE_FD int fd = -1;
    int ret;

    if (options->dry_run || options->print ||
        (lstat(link, &a) == 0 && lstat(copy, &b) == 0 && gs_same_inode(&a, &b)))
        return ELF_EXIT_DONE;
    ret = elf_entry_open(&from, options->within.root, copy, &err);
    ret = ret ?: elf_entry_open(&to, options->within.root, link, &err);
    if (ret == 0) {
        fd = openat(from.folder, from.base, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        ret = fd >= 0 ? elf_output_link(&output, &to, link, fd, &err)
                      : gs_err_errno(&err, -errno, "%s: cannot open", copy);
    }
    if (ret == 0) {
        ret = elf_output_commit(&output, NULL, !options->no_sync, &err);
        elf_output_deinit(&output);
    }
    elf_entry_close(&from);
    elf_entry_close(&to);
    if (ret != 0)
        elf_say(stderr, "gpushare-patch: %s\n", err.text);
    return elf_exit_of(ret);
}

/* Makes the copies, or with `names` their other names. */
static enum elf_exit patch_links(const struct elf_manifest *manifest,
                                 const struct elf_options *options, bool names)
{
    enum elf_exit result = ELF_EXIT_DONE;

    gs_each (entry, manifest->entries, manifest->count) {
        char link[PATH_MAX], target[PATH_MAX];
        enum elf_exit now;

        if (entry->target == NULL || is_name(options->within.root, entry) != names)
            continue;
        now = !resolve_or_say(options->within.root, entry, link, target) ? ELF_EXIT_FAILED
              : names ? name_copy(link, target, options)
                      : patch_copy(link, target, options);
        result = elf_exit_graver(result, now);
    }
    return result;
}

enum elf_exit elf_venv_patch(const struct elf_manifest *manifest,
                             const struct elf_options *options)
{
    enum elf_exit copies = patch_links(manifest, options, false);

    return elf_exit_graver(copies, patch_links(manifest, options, true));
}

static int put_back(const struct elf_entry *entry, const char *link, const char *target,
                    struct gs_err *err)
{
    char temporary[NAME_MAX + 1];

    elf_leftover_name(temporary, entry->base);
    elf_leftover_sweep(entry->folder, temporary);
    if (symlinkat(target, entry->folder, temporary) != 0)
        return gs_err_errno(err, -errno, "%s: cannot create the link", link);
    if (renameat(entry->folder, temporary, entry->folder, entry->base) == 0)
        return 0;
    gs_err_errno(err, -errno, "%s: cannot put the link back", link);
    unlinkat(entry->folder, temporary, 0);
    return err->code;
}

/* Whether the file is the interpreter to which the link led, unpatched: "venv --upgrade"
 * puts it in the place of our copy. */
static bool is_plain_copy(const struct elf_job *job, const char *interpreter)
{
    const struct elf_options none = {0};
    uint8_t ours[1 << 14], its[1 << 14];
    struct elf_job other;
    bool same = elf_job_open(&other, interpreter, &none, NULL) == 0;
    struct elf_source source = elf_job_original(&other);

    same = same && source.size == job->raw.size;
    for (uint64_t at = 0; same && at < source.size; at += sizeof its) {
        size_t n = source.size - at < sizeof its ? (size_t)(source.size - at) : sizeof its;

        same = elf_source_read(&source, at, its, n, NULL) == 0 &&
               elf_source_read(&job->raw, at, ours, n, NULL) == 0 && memcmp(its, ours, n) == 0;
    }
    elf_job_deinit(&other);
    return same;
}

/* Puts the link back in place of our copy. Any other file that is there now stays. */
static int restore_link(const char *link, const char *target, const char *interpreter,
                        const struct elf_options *options, struct gs_err *err)
{
    struct elf_job job;
    bool ours = elf_job_open(&job, link, options, NULL) == 0 &&
                (job.patched == ELF_NOTE_FOUND || is_plain_copy(&job, interpreter));
    int ret = ours ? put_back(&job.entry, link, target, err) : 0;
    struct gs_err problem = {0};

    elf_job_deinit(&job);
    if (ret == 0 && elf_registry_forget(link, &problem) != 0)
        elf_say(stderr, "gpushare-patch: %s\n", problem.text);
    if (options->quiet || ret != 0)
        return ret;
    if (ours)
        elf_say(stdout, "%s: is a link to %s again\n", link, target);
    else
        elf_say(stdout, "%s: is no longer a patched copy; left unchanged\n", link);
    return 0;
}

int elf_venv_restore(const struct elf_manifest *manifest, const struct elf_options *options,
                     struct gs_err *err)
{
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < manifest->count; i++) {
        const struct elf_manifest_entry *entry = &manifest->entries[i];
        char link[PATH_MAX], target[PATH_MAX];

        if (entry->target == NULL)
            continue;
        if (snprintf(link, sizeof link, "%s/%s", options->within.root->path, entry->path) >=
            (int)sizeof link)
            return gs_err_set(err, -ENAMETOOLONG, "%s: the path is too long", entry->path);
        if (resolve_link(options->within.root, entry, link, target, NULL) != 0)
            *target = '\0'; /* the interpreter is gone; the link is put back all the same */
        ret = restore_link(link, entry->target, target, options, err);
    }
    return ret;
}

bool elf_venv_check(const struct elf_manifest *manifest, const struct elf_options *options)
{
    bool good = true;

    gs_each (entry, manifest->entries, manifest->count) {
        char link[PATH_MAX], target[PATH_MAX];

        if (entry->target == NULL)
            continue;
        if (!resolve_or_say(options->within.root, entry, link, target)) {
            good = false;
        } else if (!is_current(options->within.root, link, target)) {
            elf_say(
                stderr,
                "gpushare-patch: %s: is not a patched copy of the present %s (an upgrade?); "
                "patch the environment again\n",
                link, target);
            good = false;
        }
    }
    return good;
}

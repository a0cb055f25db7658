/* SPDX-License-Identifier: Apache-2.0
 *
 * undo_entry.c: one listed file or folder: its present state, and how it is restored.
 *
 * The path of a listed file had no link in it. The owner of one of its folders may have put one
 * there since. So the path is walked folder by folder without following links, and root restores
 * a file of another user in a process that has become that user. The undo note must have the
 * checksum that was listed, and so must the restored bytes (job/write.c). No state; one thread.
 */
#include "rewriter/undo_entry.h"
#include "rewriter/elf/say.h"
#include "rewriter/tree/tree.h"
#include "rewriter/job/write.h"
#include "rewriter/each_user.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum elf_undo_state judge_job(const struct elf_job *job, int ret,
                                     const struct elf_listed *entry)
{
    if (ret == -ENOENT || ret == -ENOTDIR)
        return ELF_UNDO_GONE;
    if (ret == -ELOOP || ret == -ENOEXEC)
        return ELF_UNDO_REPLACED; /* by a link or folder, or a link is on the way */
    if (ret != 0)
        return ELF_UNDO_HIDDEN;
    if (job->patched == ELF_NOTE_NONE)
        return ELF_UNDO_REPLACED;
    if (job->note.lost.code != 0 ||
        memcmp(job->note.head.original_checksum, entry->original, sizeof entry->original) != 0)
        return ELF_UNDO_OTHER;
    return ELF_UNDO_PATCHED;
}

enum elf_undo_state elf_undo_look(const struct elf_listed *entry, uid_t *owner, gid_t *group)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_root everything;
    const struct elf_options options = {.within.root = &everything};
    enum elf_undo_state state = ELF_UNDO_HIDDEN;

    if (job != NULL && elf_root_open(&everything, "/", NULL) == 0) {
        state = judge_job(job, elf_job_open(job, entry->path, &options, NULL), entry);
        if (job->fd >= 0 && owner != NULL)
            *owner = job->stat.st_uid;
        if (job->fd >= 0 && group != NULL)
            *group = job->stat.st_gid;
        elf_job_deinit(job);
        elf_root_close(&everything);
    }
    free(job);
    return state;
}

static bool is_same_library(const char *a, const char *b)
{
    struct stat x, y;

    return strcmp(a, b) == 0 || (stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev &&
                                 x.st_ino == y.st_ino);
}

bool elf_undo_is_for_another(const struct elf_listed *entry, const char *runtime)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_root everything;
    const struct elf_options options = {.within.root = &everything};
    char its[PATH_MAX] = "";

    if (job != NULL && elf_root_open(&everything, "/", NULL) == 0) {
        if (elf_job_open(job, entry->path, &options, NULL) == 0 &&
            job->patched == ELF_NOTE_FOUND)
            elf_note_value(job->note.text, "runtime", its, sizeof its);
        elf_job_deinit(job);
        elf_root_close(&everything);
    }
    free(job);
    return its[0] != '\0' && !is_same_library(its, runtime);
}

/* The file is opened and checked once more, so that the file which is restored is the one that
 * was checked. */
static enum elf_exit restore_here(const struct elf_listed *entry,
                                  const struct elf_options *options)
{
    struct elf_job *job = calloc(1, sizeof *job);
    struct elf_options how = *options;
    struct elf_root everything = {.fd = -1};
    struct gs_err err = {0};
    int ret = job != NULL ? elf_root_open(&everything, "/", &err) : -ENOMEM;

    how.within.root = &everything;
    how.restore = true;
    ret = ret ?: elf_job_open(job, entry->path, &how, &err);
    if (ret == 0 && judge_job(job, 0, entry) != ELF_UNDO_PATCHED)
        ret = gs_err_set(&err, -ESTALE, "%s: was changed meanwhile; it is left alone",
                         entry->path);
    if (ret == 0 && geteuid() == 0 && job->stat.st_uid != 0)
        ret = gs_err_set(&err, -ESTALE, "%s: has got another owner meanwhile; it is left alone",
                         entry->path);
    ret = ret ?: elf_job_restore(job, &err);
    if (ret == 0)
        elf_say(stdout, "%s: %s\n", entry->path,
                options->dry_run ? "would be restored" : "restored");
    else
        elf_say(stderr, "gpushare-patch: %s\n", err.code != 0 ? err.text : "no memory");
    if (job != NULL)
        elf_job_deinit(job);
    elf_root_close(&everything);
    free(job);
    return ret == 0 ? ELF_EXIT_DONE : ELF_EXIT_FAILED;
}

static enum elf_exit restore_root_here(const struct elf_listed *entry,
                                       const struct elf_options *options)
{
    struct elf_options how = *options;

    how.folder.listed = true;
    how.restore = true;
    how.lists.restore_all = false;
    how.folder.jobs = 1;
    how.within.programs_only = entry->venv;
    *(entry->venv ? &how.folder.venv : &how.folder.tree) = entry->root;
    return elf_tree(&how);
}

static enum elf_exit call_as_owner(uid_t owner, gid_t group, elf_undo_call *call,
                                   const struct elf_listed *entry,
                                   const struct elf_options *options)
{
    enum elf_exit result;

    if (geteuid() != 0 || owner == 0)
        return call(entry, options);
    if (!elf_undo_call_as(owner, group, call, entry, options, &result))
        elf_say(stderr, "gpushare-patch: %s: the process of user %u failed\n", entry->path,
                (unsigned)owner);
    return result;
}

enum elf_exit elf_undo_restore(const struct elf_listed *entry,
                               const struct elf_options *options)
{
    uid_t owner = 0;
    gid_t group = 0;

    elf_undo_look(entry, &owner, &group);
    return call_as_owner(owner, group, restore_here, entry, options);
}

enum elf_exit elf_undo_restore_root(const struct elf_listed *entry,
                                    const struct elf_options *options)
{
    struct elf_root folder;
    struct stat st;
    const bool found =
        elf_root_open_resolved(&folder, entry->root, NULL) == 0 && fstat(folder.fd, &st) == 0;

    elf_root_close(&folder);
    if (!found)
        return ELF_EXIT_NOTHING; /* gone, or a link leads elsewhere now */
    return call_as_owner(st.st_uid, st.st_gid, restore_root_here, entry, options);
}

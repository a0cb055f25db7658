/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c: carries out a job: copies, changes, reads back, commits.
 *
 * Until the commit no existing file is touched. One thread per job.
 */
#include "rewriter/job/write.h"
#include "common/same.h"
#include "rewriter/output/copy.h"
#include "rewriter/output/fault.h"
#include "rewriter/output/output.h"
#include "rewriter/job/relaid.h"
#include "rewriter/verify/verify.h"
#include "rewriter/elf/reader.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* where the two checksums lie in the undo note */
#define SUMS_AT offsetof(struct elf_undo_head, original_checksum)
_Static_assert(offsetof(struct elf_undo_head, image_checksum) == SUMS_AT + ELF_CHECKSUM_SIZE,
               "format");

struct elf_source elf_job_original(const struct elf_job *job)
{
    struct elf_source source = job->raw;

    if (job->patched == ELF_NOTE_FOUND) {
        source.size = job->note.head.original_size;
        source.undo = job->note.undo;
        source.undo_count = job->note.undo_count;
    }
    return source;
}

/* Checks the new file with our reader, with libelf, and with the loader. */
static int verify_patched(const struct elf_job *job, const struct elf_output *output,
                          struct gs_err *err)
{
    const struct elf_plan *plan = &job->plan;
    struct elf_source source = {.name = job->name, .fd = output->fd, .size = plan->tail.end};
    struct elf_image new;
    int ret = elf_image_read(&new, &source, err);

    if (ret != 0)
        return ret;
    ret = elf_verify_meaning(plan, &new, err);
    elf_fault_damage(output->fd);
    ret = ret ?: elf_verify_second(plan, &new, output->fd, err);
    elf_image_deinit(&new);
    return ret ?: elf_verify_loader(&job->image, job->fd, output->fd, err);
}

static int fill_patched(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    struct elf_plan *plan = &job->plan;
    struct elf_copy copy = {
        .output = output, .original = &job->image.source, .sync = !job->options->no_sync};
    struct elf_digests digests;
    int ret = elf_copy_patched(&copy, plan, &digests, err);

    ret = ret
              ?: elf_output_write(output, plan->tail.undo_at + SUMS_AT, &digests,
                                  sizeof digests, err);
    if (ret == 0)
        memcpy(job->listed.original, digests.whole, sizeof job->listed.original);
    return ret ?: verify_patched(job, output, err);
}

/* 0; 1 if the result of the undo note is not the original. */
static int fill_original(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    struct elf_source original = elf_job_original(job);
    struct elf_copy copy = {
        .output = output, .original = &original, .sync = !job->options->no_sync};
    const struct elf_undo_head *head = &job->note.head;
    struct elf_digests digests;
    int ret = elf_copy_original(&copy, head->image_end, &digests, err);

    if (ret != 0)
        return ret;
    return memcmp(digests.whole, head->original_checksum, sizeof digests.whole) != 0;
}

/* Writes the original or, if strip or objcopy ran since, the file that those would have made of
 * it. */
static int fill_restored(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    int ret = job->note.relaid ? 1 : fill_original(job, output, err);

    if (ret <= 0)
        return ret;
    job->note.relaid = true; /* strip may happen to leave size and place as they were */
    if (ftruncate(output->fd, 0) != 0)
        return gs_err_errno(err, -errno, "%s: cannot empty the new file", job->name);
    return elf_relaid_write(job, output, err);
}

/* Sets attributes and takes the final step, in place of the input, or beside it with -o. The
 * time is that of the last change; NULL: now. */
static int finish_output(struct elf_job *job, struct elf_output *output,
                         const struct timespec *changed, struct gs_err *err)
{
    bool in_place = job->options->output == NULL;
    int ret = elf_output_attributes(output, job->fd, in_place, changed, err);

    elf_fault();
    job->group_lost = output->group_lost;
    return ret
               ?: elf_output_commit(output, in_place ? &job->stat : NULL,
                                    !job->options->no_sync, err);
}

static bool is_same_entry(const struct elf_entry *a, const struct elf_entry *b)
{
    struct stat x, y;

    return strcmp(a->base, b->base) == 0 && fstat(a->folder, &x) == 0 &&
           fstat(b->folder, &y) == 0 && gs_same_inode(&x, &y);
}

/* Opens the place of the result: the file itself, or another one beside it or elsewhere. */
static int open_output(const struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    const char *target = job->options->output;
    struct elf_entry entry;
    int ret;

    if (target == NULL)
        return elf_output_open(output, &job->entry, job->path, err);
    ret = elf_entry_open(&entry, job->options->within.output_root, target, err);
    if (ret == 0 && is_same_entry(&entry, &job->entry))
        ret = gs_err_set(err, -EEXIST,
                         "%s: is the input file itself; omit --output to change it in place",
                         target);
    ret = ret ?: elf_output_open(output, &entry, target, err);
    elf_entry_close(&entry);
    return ret;
}

/* Finds the new file's path by the descriptor of its folder. */
static void fill_listed(struct elf_job *job, const struct elf_output *output)
{
    char link[32], folder[PATH_MAX];
    struct stat st;
    ssize_t n;

    snprintf(link, sizeof link, "/proc/self/fd/%d", output->folder);
    n = readlink(link, folder, sizeof folder - 1);
    if (n <= 0 || fstat(output->fd, &st) != 0)
        return;
    folder[n] = '\0';
    if (snprintf(job->listed.path, sizeof job->listed.path, "%s/%s", n > 1 ? folder : "",
                 output->base) >= (int)sizeof job->listed.path)
        job->listed.path[0] = '\0';
    job->listed.device = st.st_dev;
    job->listed.inode = st.st_ino;
}

void elf_job_list(struct elf_job *job)
{
    const struct elf_options *options = job->options;
    const struct elf_root *root = options->within.output_root != NULL
                                      ? options->within.output_root
                                      : options->within.root;

    if (options->dry_run || job->listed.path[0] == '\0')
        return;
    job->listed.venv = options->folder.venv != NULL;
    if (root != NULL && (options->folder.venv != NULL || options->folder.tree != NULL))
        memcpy(job->listed.root, root->path, sizeof job->listed.root);
    elf_registry_add(&job->listed, &job->unlisted);
}

/* The file is listed before it gets its name. If the run is killed between these steps, a
 * listed file is not patched, which does no harm. */
static int put_patched(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    bool listed_before;
    int ret;

    fill_listed(job, output);
    listed_before = elf_registry_has(job->listed.path);
    elf_job_list(job);
    ret = finish_output(job, output, NULL, err);
    if (ret != 0 && output->temporary[0] != '\0' && !listed_before)
        elf_registry_forget(job->listed.path, NULL);
    return ret;
}

int elf_job_write(struct elf_job *job, struct gs_err *err)
{
    struct elf_output output;
    int ret = open_output(job, &output, err);

    if (ret != 0)
        return ret;
    elf_fault();
    ret = fill_patched(job, &output, err);
    ret = ret ?: put_patched(job, &output, err);
    elf_output_deinit(&output);
    return ret;
}

/* $ORIGIN in the names of the original is right only in the original's folder. */
static int refuse_pinned(const struct elf_job *job, struct gs_err *err)
{
    char origin[PATH_MAX];

    elf_note_value(job->note.text, "origin", origin, sizeof origin);
    if (*origin == '\0' || job->options->output != NULL)
        return 0;
    return gs_err_set(err, -ENOEXEC,
                      "%s: is a copy of a program in %s, whose original would not find its "
                      "libraries here; --venv DIR --restore puts the link to that program back",
                      job->name, origin);
}

int elf_job_restore(struct elf_job *job, struct gs_err *err)
{
    struct elf_output output;
    int ret;

    if (job->patched == ELF_NOTE_NONE)
        return gs_err_set(err, -ENODATA, "%s: nothing to do: it is not patched", job->name);
    if (job->note.lost.code != 0)
        return gs_err_set(err, job->note.lost.code, "%s", job->note.lost.text);
    ret = elf_job_refuse_left(job, err) ?: refuse_pinned(job, err);
    ret = ret ?: open_output(job, &output, err);
    if (ret != 0)
        return ret;
    elf_fault();
    ret = fill_restored(job, &output, err);
    if (!job->options->dry_run) /* only now is it known whether it can be restored */
        ret = ret ?: finish_output(job, &output, job->note.relaid ? NULL : &job->changed, err);
    elf_output_deinit(&output);
    return ret;
}

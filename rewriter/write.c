/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c: carries out a job: copy, change, read back, commit.
 *
 * Until the commit nothing that was there before is touched. One thread per job.
 */
#include "rewriter/copy.h"
#include "rewriter/fault.h"
#include "rewriter/job.h"
#include "rewriter/output.h"
#include "rewriter/verify.h"

#include <errno.h>
#include <string.h>

/* The file as it is, with our changes taken back if it has any. */
static struct elf_source original_source(const struct elf_job *job)
{
    struct elf_source source = job->raw;

    if (job->patched == ELF_NOTE_FOUND) {
        source.size = job->note.original_size;
        source.undo = job->note.undo;
        source.undo_count = job->note.undo_count;
    }
    return source;
}

static int fill(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    struct elf_plan *plan = &job->plan;
    struct elf_copy copy = {
        .output = output, .original = &job->image.source, .sync = !job->options->no_sync};
    uint8_t digest[ELF_CHECKSUM_SIZE];
    int ret = elf_copy_patched(&copy, plan, digest, err);

    ret = ret ?: elf_output_write(output, plan->sum_at, digest, sizeof digest, err);
    ret = ret ?: elf_verify_meaning(plan, output->fd, err);
    return ret ?: elf_verify_loader(&job->image, job->fd, output->fd, err);
}

static int fill_original(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    struct elf_source original = original_source(job);
    struct elf_copy copy = {
        .output = output, .original = &original, .sync = !job->options->no_sync};
    uint8_t digest[ELF_CHECKSUM_SIZE];
    int ret = elf_copy_original(&copy, digest, err);

    if (ret == 0 && memcmp(digest, job->note.original_checksum, sizeof digest) != 0)
        return gs_err_set(
            err, -EIO,
            "%s: what the undo note gives back is not the original (the file was changed "
            "after it was patched); take it from its package or build again",
            job->name);
    return ret;
}

/* Attributes and the final step; in place of the input, or beside it with -o. */
static int finish(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    bool in_place = job->options->output == NULL;
    int ret = elf_output_attributes(output, job->fd, in_place, err);

    elf_fault();
    return ret
               ?: elf_output_commit(output, in_place ? &job->stat : NULL,
                                    !job->options->no_sync, err);
}

int elf_job_write(struct elf_job *job, struct gs_err *err)
{
    const char *target = job->options->output != NULL ? job->options->output : job->path;
    struct elf_output output;
    int ret = elf_output_open(&output, target, err);

    if (ret != 0)
        return ret;
    elf_fault();
    ret = fill(job, &output, err);
    ret = ret ?: finish(job, &output, err);
    elf_output_deinit(&output);
    return ret;
}

int elf_job_restore(struct elf_job *job, struct gs_err *err)
{
    const char *target = job->options->output != NULL ? job->options->output : job->path;
    struct elf_output output;
    int ret;

    if (job->patched == ELF_NOTE_NONE)
        return gs_err_set(err, -ENODATA, "%s: nothing to do: it is not patched", job->name);
    if (job->note.lost.code != 0)
        return gs_err_set(err, job->note.lost.code, "%s", job->note.lost.text);
    if (job->options->dry_run)
        return 0;
    ret = elf_output_open(&output, target, err);
    if (ret != 0)
        return ret;
    elf_fault();
    ret = fill_original(job, &output, err);
    ret = ret ?: finish(job, &output, err);
    elf_output_deinit(&output);
    return ret;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * write.c: carries out a job: copy, change, read back, commit.
 *
 * Until the commit nothing that was there before is touched. One thread per job.
 */
#include "rewriter/fault.h"
#include "rewriter/job.h"
#include "rewriter/output.h"
#include "rewriter/verify.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* The copy of the original, without our changes if it has any. */
static int copy_original(struct elf_job *job, struct elf_output *output, uint64_t size,
                         struct gs_err *err)
{
    int ret = elf_output_copy(output, job->fd, size, err);

    if (ret == 0 && job->patched == ELF_NOTE_FOUND)
        ret = elf_output_changes(output, job->note.undo, job->note.undo_count, err);
    return ret;
}

static int fill(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    struct elf_plan *plan = &job->plan;
    uint64_t tail_size = plan->end - plan->segment.offset;
    uint8_t digest[ELF_SHA256_SIZE];
    int ret = copy_original(job, output, job->image.source.size, err);

    ret = ret ?: elf_output_changes(output, plan->changes, plan->change_count, err);
    ret = ret ?: elf_output_write(output, plan->segment.offset, plan->tail, tail_size, err);
    elf_fault();
    ret = ret ?: elf_verify_bytes(plan, output->fd, digest, err);
    ret = ret ?: elf_output_write(output, plan->sha_at, digest, sizeof digest, err);
    ret = ret ?: elf_verify_meaning(plan, output->fd, err);
    return ret ?: elf_verify_loader(&job->image, job->fd, output->fd, err);
}

/* Attributes and the final step; in place of the input, or beside it with -o. */
static int finish(struct elf_job *job, struct elf_output *output, struct gs_err *err)
{
    bool in_place = job->options->output == NULL;
    int ret = elf_output_attributes(output, job->fd, in_place, err);

    elf_fault();
    return ret ?: elf_output_commit(output, in_place ? &job->stat : NULL, err);
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
    ret = copy_original(job, &output, job->note.original_size, err);
    ret = ret
              ?: elf_verify_digest(job->name, output.fd, job->note.original_size,
                                   job->note.original_sha256, err);
    ret = ret ?: finish(job, &output, err);
    elf_output_deinit(&output);
    return ret;
}

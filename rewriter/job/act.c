/* SPDX-License-Identifier: Apache-2.0
 *
 * act.c: one file, from opening to the report.
 *
 * No state, any thread; the streams are the caller's.
 */
#include "rewriter/job/act.h"
#include "rewriter/output/output.h"
#include "rewriter/job/report.h"
#include "rewriter/elf/say.h"
#include "rewriter/job/write.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum elf_exit check_file(struct elf_job *job, FILE *out, struct gs_err *problem)
{
    struct gs_err unread = {0};
    char runtime[PATH_MAX] = "";
    bool present;

    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
    else if (elf_job_read(job, &unread) != 0 && job->is_closed && !job->options->json)
        elf_say(out, "%s; it calls the driver\n", unread.text);
    present = runtime[0] != '\0' && access(runtime, R_OK) == 0;
    if (runtime[0] != '\0')
        elf_job_loads_runtime(job, problem);
    if (job->options->json)
        elf_report_check_json(out, job, present, problem);
    else if (!job->options->quiet && problem->code == 0)
        elf_report_check(out, job, present);
    if (problem->code != 0)
        return elf_exit_of(problem->code);
    if (job->patched == ELF_NOTE_NONE)
        return ELF_EXIT_NOTHING;
    return present ? ELF_EXIT_DONE : ELF_EXIT_FAILED;
}

/* Whether strip or objcopy laid a patched file out anew, and these options would patch it
 * in the same way. Then the original cannot be read, but there is nothing to do. */
static bool is_settled(struct elf_job *job)
{
    return job->note.relaid && job->note.lost.code == 0 && job->options->output == NULL &&
           elf_job_is_current(job);
}

static enum elf_exit print_file(struct elf_job *job, int ret, FILE *out, struct gs_err *err)
{
    bool settled = ret == 0 && is_settled(job);

    if (!settled) {
        ret = ret ?: elf_job_read(job, err);
        ret = ret ?: elf_job_decide(job, err);
        ret = ret ?: elf_job_plan(job, err);
    }
    if (ret == 0 && job->options->output == NULL && elf_job_is_current(job))
        ret = elf_job_loads_runtime(job, err);
    if (job->options->json)
        elf_report_print_json(out, job, err);
    else
        elf_report_print(out, job, err);
    return elf_exit_of(ret);
}

/* Takes the restored file out of the list of patched files. Errors of the list are
 * reported, but do not fail the run. */
static void forget_file(const struct elf_job *job, FILE *errors)
{
    struct gs_err problem = {0};

    if (!job->options->dry_run && job->options->output == NULL &&
        elf_registry_forget(job->path, &problem) != 0)
        elf_say(errors, "gpushare-patch: %s: restored, but still listed: %s\n", job->name,
                problem.text);
}

static void say_unlisted(const struct elf_job *job, FILE *errors)
{
    if (job->unlisted.code != 0)
        elf_say(errors,
                "gpushare-patch: %s: patched, but not listed, so that removing gpushare will "
                "not restore it: %s\n",
                job->name, job->unlisted.text);
}

/* Adds a file that was patched before to the list, since it may have been patched where no list
 * could be kept. */
static void list_again(struct elf_job *job, FILE *errors)
{
    if (job->options->output != NULL)
        return;
    memcpy(job->listed.path, job->path, sizeof job->listed.path);
    memcpy(job->listed.original, job->note.head.original_checksum, sizeof job->listed.original);
    job->listed.device = job->stat.st_dev;
    job->listed.inode = job->stat.st_ino;
    elf_job_list(job);
    say_unlisted(job, errors);
}

static int restore_file(struct elf_job *job, FILE *out, FILE *errors, struct gs_err *err)
{
    int ret = elf_job_restore(job, err);

    if (ret == 0)
        forget_file(job, errors);

    if (ret == 0 && !job->options->quiet)
        elf_say(out, "%s: %s%s%s\n", job->name,
                job->options->dry_run ? "would be restored" : "restored",
                job->options->output ? " into " : "",
                job->options->output ? job->options->output : "");
    if (ret == 0 && !job->options->quiet && job->note.relaid)
        elf_say(out,
                "%s: note: strip or objcopy ran after the patch; every loaded byte is "
                "the original's again, but the parts they removed are not restored\n",
                job->name);
    if (ret == 0 && job->signed_before)
        elf_say(job->options->quiet ? errors : out,
                "%s: note: its IMA or EVM signature was lost when it was patched; install it "
                "from its package again, or sign it\n",
                job->name);
    if (ret == 0 && job->group_lost)
        elf_say(job->options->quiet ? errors : out,
                "%s: note: its group %u could not be kept, since you are not in it\n",
                job->name, job->stat.st_gid);
    return ret;
}

static int patch_file(struct elf_job *job, FILE *out, FILE *errors, struct gs_err *err)
{
    int ret = is_settled(job) ? -EALREADY : elf_job_read(job, err);

    ret = ret ?: elf_job_decide(job, err);
    if ((ret == 0 && elf_job_is_current(job) && job->options->output == NULL) ||
        ret == -EALREADY) {
        ret = elf_job_loads_runtime(job, err);
        if (ret == 0)
            list_again(job, errors);
        if (ret == 0 && !job->options->quiet)
            elf_say(out, "%s: already patched\n", job->name);
        return ret;
    }
    ret = ret ?: elf_job_plan(job, err);
    if (ret == 0 && !job->options->dry_run)
        ret = elf_job_write(job, err);
    if (ret == 0)
        say_unlisted(job, errors);
    if (ret == 0 && job->options->quiet)
        elf_report_strip(errors, job);
    else if (ret == 0)
        elf_report_done(out, job);
    return ret;
}

/* Removes the file that a killed run has left beside this file. */
static void sweep_leftovers(const struct elf_job *job)
{
    char name[NAME_MAX + 1];

    elf_leftover_name(name, job->entry.base);
    if (job->entry.folder >= 0 && job->options->output == NULL)
        elf_leftover_sweep(job->entry.folder, name);
}

static enum elf_exit act_on(struct elf_job *job, const char *name,
                            const struct elf_options *options, FILE *out, FILE *errors)
{
    struct gs_err err = {0};
    enum elf_exit result;
    int ret = elf_job_open(job, name, options, &err);

    if (!options->print && !options->check && !options->dry_run)
        sweep_leftovers(job);
    if (options->print) {
        result = print_file(job, ret, out, &err);
    } else if (options->check && (ret == 0 || options->json)) {
        result = check_file(job, out, &err);
        if (err.code != 0 && !options->json)
            elf_say(errors, "gpushare-patch: %s\n", err.text);
    } else {
        if (ret == 0)
            ret = options->restore ? restore_file(job, out, errors, &err)
                                   : patch_file(job, out, errors, &err);
        if (ret != 0)
            elf_say(errors, "gpushare-patch: %s\n", err.text);
        result = elf_exit_of(ret);
    }
    return result;
}

enum elf_exit elf_act(const char *name, const struct elf_options *options, FILE *out,
                      FILE *errors, bool *reaches_cuda)
{
    struct elf_job *job = calloc(1, sizeof *job); /* tens of KB: the stack may be small */
    enum elf_exit result;

    if (job == NULL) {
        fprintf(errors, "gpushare-patch: no memory\n");
        return ELF_EXIT_FAILED;
    }
    result = act_on(job, name, options, out, errors);
    if (reaches_cuda != NULL)
        *reaches_cuda = elf_job_reaches(job);
    elf_job_deinit(job);
    free(job);
    return result;
}

enum elf_exit elf_exit_graver(enum elf_exit a, enum elf_exit b)
{
    static const int rank[] = {[ELF_EXIT_DONE] = 0,
                               [ELF_EXIT_NOTHING] = 1,
                               [ELF_EXIT_UNSUPPORTED] = 2,
                               [ELF_EXIT_USAGE] = 3,
                               [ELF_EXIT_FAILED] = 4};

    return rank[a] >= rank[b] ? a : b;
}

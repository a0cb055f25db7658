/* SPDX-License-Identifier: Apache-2.0
 *
 * act.c: one file, from opening to the report.
 *
 * No state, any thread; the streams are the caller's.
 */
#include "rewriter/job/act.h"
#include "rewriter/job/report.h"
#include "rewriter/elf/say.h"
#include "common/same.h"
#include "rewriter/output/copy.h"
#include "rewriter/output/fault.h"
#include "rewriter/job/relaid.h"
#include "rewriter/verify/second.h"
#include "rewriter/verify/verify.h"
#include "rewriter/elf/reader.h"

#include <errno.h>

/* Carries out a job: copies, changes, reads back, commits.
 *
 * Until the commit no existing file is touched. One thread per job. */

/* where the two checksums lie in the undo note */
#define SUMS_AT offsetof(struct elf_undo_head, original_checksum)
_Static_assert(offsetof(struct elf_undo_head, image_checksum) == SUMS_AT + ELF_CHECKSUM_SIZE,
               "format");

struct elf_source elf_job_original(const struct elf_job *job)
{
    return job->patched == ELF_NOTE_FOUND ? elf_note_undone(&job->note, &job->raw) : job->raw;
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
    struct elf_copy copy = {.output = output,
                            .original = &job->image.source,
                            .plan = plan,
                            .image_end = job->image.image_end,
                            .sync = !job->options->no_sync};
    struct elf_digests digests;
    int ret = elf_copy_file(&copy, &digests, err);

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
    const struct elf_undo_head *head = &job->note.head;
    struct elf_copy copy = {.output = output,
                            .original = &original,
                            .image_end = head->image_end,
                            .sync = !job->options->no_sync};
    struct elf_digests digests;
    int ret = elf_copy_file(&copy, &digests, err);

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

/* Adds what `listed` has to the list of patched files. */
static void elf_job_list(struct elf_job *job)
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

/* Carries out the plan, and adds the file to the list of patched files. If the list cannot be
 * written, that is noted (`unlisted`) and is no failure. */
static int elf_job_write(struct elf_job *job, struct gs_err *err)
{
    struct elf_output output;
    bool listed_before;
    int ret = open_output(job, &output, err);

    if (ret != 0)
        return ret;
    elf_fault();
    ret = fill_patched(job, &output, err);
    if (ret == 0) {
        /* The file is listed before it gets its name. If the run is killed between these steps, a
         * listed file is not patched, which does no harm. */
        fill_listed(job, &output);
        listed_before = elf_registry_has(job->listed.path);
        elf_job_list(job);
        ret = finish_output(job, &output, NULL, err);
        if (ret != 0 && output.temporary[0] != '\0' && !listed_before)
            elf_registry_forget(job->listed.path, NULL);
    }
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
    return elf_refuse(job->name, err,
                      "is a copy of a program in %s, whose original would not find its "
                      "libraries here; --venv DIR --restore puts the link to that program back",
                      origin);
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
    const struct elf_options *options = job->options;
    FILE *notes = options->quiet ? errors : out;
    struct gs_err problem = {0};
    int ret = elf_job_restore(job, err);

    if (ret != 0)
        return ret;
    /* errors of the list of patched files are reported, but do not fail the run */
    if (!options->dry_run && options->output == NULL &&
        elf_registry_forget(job->path, &problem) != 0)
        elf_say(errors, "gpushare-patch: %s: restored, but still listed: %s\n", job->name,
                problem.text);
    if (!options->quiet)
        elf_say(out, "%s: %s%s%s\n", job->name,
                options->dry_run ? "would be restored" : "restored",
                options->output ? " into " : "", options->output ? options->output : "");
    if (!options->quiet && job->note.relaid)
        elf_say(out,
                "%s: note: strip or objcopy ran after the patch; every loaded byte is "
                "the original's again, but the parts they removed are not restored\n",
                job->name);
    if (job->signed_before)
        elf_say(notes,
                "%s: note: its IMA or EVM signature was lost when it was patched; install it "
                "from its package again, or sign it\n",
                job->name);
    if (job->group_lost)
        elf_say(notes, "%s: note: its group %u could not be kept, since you are not in it\n",
                job->name, job->stat.st_gid);
    return 0;
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

static enum elf_exit act_on(struct elf_job *job, const char *name,
                            const struct elf_options *options, FILE *out, FILE *errors)
{
    char leftover[NAME_MAX + 1];
    struct gs_err err = {0};
    enum elf_exit result;
    int ret = elf_job_open(job, name, options, &err);

    if (!options->print && !options->check && !options->dry_run && options->output == NULL &&
        job->entry.folder >= 0) { /* of a killed run */
        elf_leftover_name(leftover, job->entry.base);
        elf_leftover_sweep(job->entry.folder, leftover);
    }
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: gpushare-patch, file after file.
 *
 * Single thread. Reports go to stdout, errors to stderr, one line each.
 */
#include "rewriter/fault.h"
#include "rewriter/report.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef GS_PATCH_FAULT
int elf_fault_step;
int elf_fault_calls;
#endif

static void complain(const struct gs_err *err)
{
    fprintf(stderr, "gpushare-patch: %s\n", err->text);
}

static enum elf_exit check(struct elf_job *job)
{
    char runtime[PATH_MAX] = "";
    bool present;

    if (job->patched == ELF_NOTE_FOUND)
        elf_note_value(job->note.text, "runtime", runtime, sizeof runtime);
    present = runtime[0] != '\0' && access(runtime, R_OK) == 0;
    if (job->options->json)
        elf_report_check_json(stdout, job, present);
    else if (!job->options->quiet)
        elf_report_check(stdout, job, present);
    if (job->patched == ELF_NOTE_NONE)
        return ELF_EXIT_NOTHING;
    return present ? ELF_EXIT_DONE : ELF_EXIT_FAILED;
}

static enum elf_exit print(struct elf_job *job, int ret, struct gs_err *err)
{
    ret = ret ?: elf_job_read(job, err);
    ret = ret ?: elf_job_decide(job, err);
    ret = ret ?: elf_job_plan(job, err);
    if (job->options->json)
        elf_report_print_json(stdout, job, err);
    else
        elf_report_print(stdout, job, err);
    return elf_exit_of(ret);
}

static int restore(struct elf_job *job, struct gs_err *err)
{
    int ret = elf_job_restore(job, err);

    if (ret == 0 && !job->options->quiet)
        printf("%s: %s%s%s\n", job->name,
               job->options->dry_run ? "would be restored" : "restored",
               job->options->output ? " into " : "",
               job->options->output ? job->options->output : "");
    return ret;
}

static int patch(struct elf_job *job, struct gs_err *err)
{
    int ret = elf_job_read(job, err);

    ret = ret ?: elf_job_decide(job, err);
    if (ret == 0 && elf_job_is_current(job) && job->options->output == NULL) {
        if (!job->options->quiet)
            printf("%s: already patched\n", job->name);
        return 0;
    }
    ret = ret ?: elf_job_plan(job, err);
    if (ret == 0 && !job->options->dry_run)
        ret = elf_job_write(job, err);
    if (ret == 0 && !job->options->quiet)
        elf_report_done(stdout, job);
    return ret;
}

static enum elf_exit do_file(const char *name, const struct elf_options *options)
{
    struct gs_err err = {0};
    struct elf_job job;
    enum elf_exit result;
    int ret = elf_job_open(&job, name, options, &err);

    if (options->print) {
        result = print(&job, ret, &err);
    } else if (ret == 0 && options->check) {
        result = check(&job);
    } else {
        if (ret == 0)
            ret = options->restore ? restore(&job, &err) : patch(&job, &err);
        if (ret != 0)
            complain(&err);
        result = elf_exit_of(ret);
    }
    elf_job_deinit(&job);
    return result;
}

/* The graver of two results: 1, 3, 4, 0. */
static enum elf_exit graver(enum elf_exit a, enum elf_exit b)
{
    static const int rank[] = {[ELF_EXIT_DONE] = 0,
                               [ELF_EXIT_NOTHING] = 1,
                               [ELF_EXIT_UNSUPPORTED] = 2,
                               [ELF_EXIT_USAGE] = 3,
                               [ELF_EXIT_FAILED] = 4};

    return rank[a] >= rank[b] ? a : b;
}

int main(int argc, char **argv)
{
    enum elf_exit result = ELF_EXIT_DONE;
    struct elf_options options;
    struct gs_err err = {0};

    if (elf_options_parse(&options, argc, argv, &err) != 0) {
        complain(&err);
        fputs("Try gpushare-patch --help\n", stderr);
        return ELF_EXIT_USAGE;
    }
#ifdef GS_PATCH_FAULT
    if (options.fault_text != NULL)
        elf_fault_step = (int)strtol(options.fault_text, NULL, 10);
#endif
    if (options.help) {
        elf_options_help(stdout);
    } else if (options.version) {
        puts("gpushare-patch " GS_VERSION);
    } else {
        for (int i = 0; i < options.file_count; i++)
            result = graver(result, do_file(options.files[i], &options));
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fprintf(stderr, "gpushare-patch: cannot write to standard output\n");
        return ELF_EXIT_FAILED;
    }
    return result;
}

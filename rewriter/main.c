/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: gpushare-patch, file after file.
 *
 * All work is done in a thread with a stack of its own, since the caller may have left this process
 * a small one (ulimit -s). Reports go to stdout, errors to stderr, one line each.
 */
#include "common/fd.h"
#include "rewriter/elf/say.h"
#include "rewriter/output/fault.h"
#include "rewriter/tree/tree.h"
#include "rewriter/undo.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>

#define STACK_BYTES ((size_t)8 << 20) /* as is usual */

#ifdef GS_PATCH_FAULT
int elf_fault_step;
int elf_fault_calls;
long elf_fault_byte = -1;
#endif

static enum elf_exit run_all(int argc, char **argv)
{
    enum elf_exit result = ELF_EXIT_DONE;
    struct elf_options options;
    struct gs_err err = {0};
    bool is_report; /* printing is the only purpose of the run */

    if (elf_options_parse(&options, argc, argv, &err) != 0) {
        elf_say(stderr, "gpushare-patch: %s\n", err.text);
        fputs("Try gpushare-patch --help\n", stderr);
        return ELF_EXIT_USAGE;
    }
#ifdef GS_PATCH_FAULT
    if (options.fault_text != NULL)
        elf_fault_step = (int)strtol(options.fault_text, NULL, 10);
    if (options.fault_byte_text != NULL)
        elf_fault_byte = strtol(options.fault_byte_text, NULL, 10);
#endif
    options.reach = elf_reach_new();
    if (options.help) {
        elf_options_help(stdout);
    } else if (options.version) {
        puts("gpushare-patch " GS_VERSION);
    } else if (options.lists.list || options.lists.restore_all || options.lists.repatch) {
        result = elf_undo(&options);
    } else if (options.folder.tree != NULL || options.folder.venv != NULL) {
        result = elf_tree(&options);
    } else {
        for (int i = 0; i < options.file_count; i++)
            result = elf_exit_graver(result,
                                     elf_act(options.files[i], &options, stdout, stderr, NULL));
    }
    elf_reach_free(options.reach);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return result;
    /* the files are processed even if the report could not be printed */
    is_report =
        options.print || options.check || options.dry_run || options.help || options.version;
    fprintf(stderr, "gpushare-patch: cannot write to standard output%s\n",
            is_report ? "" : "; the exit status still tells whether the files were changed");
    return is_report ? ELF_EXIT_FAILED : result;
}

struct run {
    int argc;
    char **argv;
    enum elf_exit result;
};

static void *run_thread(void *argument)
{
    struct run *run = argument;

    run->result = run_all(run->argc, run->argv);
    return NULL;
}

int main(int argc, char **argv)
{
    struct run run = {.argc = argc, .argv = argv};
    pthread_attr_t attributes;
    pthread_t thread;

    if (gs_fd_open_standard(O_RDONLY) != 0) /* the new file could get such a number */
        return ELF_EXIT_FAILED;
    if (gs_complete_asked(argc, argv))
        return gs_complete_line(elf_options_table, false, "FILE", argc, argv);
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error like a full disk */
    signal(SIGPIPE, SIG_IGN); /* a closed pipe must not stop the work half way either */
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    pthread_setattr_default_np(&attributes); /* of the threads that start here, and of theirs */
    if (pthread_create(&thread, &attributes, run_thread, &run) == 0)
        pthread_join(thread, NULL);
    else
        run_thread(&run);
    pthread_attr_destroy(&attributes);
    return (int)run.result;
}

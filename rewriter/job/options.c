/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: the table of options, and which of them go together. No state.
 */
#include "rewriter/job/options.h"
#include "common/same.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define ROW(name, letter, argument, kind, high, field, help)                                   \
    {                                                                                          \
        name, argument, GS_OPTION_##kind, NULL, 1, high, help, NULL, letter,                   \
            offsetof(struct elf_options, field)                                                \
    }
#define FLAG(name, letter, field, help) ROW(name, letter, NULL, FLAG, 0, field, help)
#define TEXT(name, letter, argument, field, help)                                              \
    ROW(name, letter, argument, TEXT, 0, field, help)

const struct gs_option elf_options_table[] = {
    FLAG("print", 'p', print, "report what each file is and how it would change"),
    FLAG("check", 'c', check,
         "report whether each file is patched and whether its runtime library exists"),
    FLAG("restore", 'r', restore,
         "restore each file to the exact bytes it had before it was patched"),
    TEXT("output", 'o', "OUT", output,
         "write the result to OUT and leave FILE unchanged (one FILE only)"),
    FLAG("dry-run", 'n', dry_run, "do everything except writing"),
    TEXT("runtime", 0, "PATH", runtime,
         "use this runtime library (default: the one installed with this tool)"),
    ROW("scope", 0, "auto|process|object", CHOICE, 0, scope,
        "patch as a program or as a library (auto: by the kind of file)"),
    FLAG("any", 'a', any,
         "also patch files that do not use CUDA themselves (they may load it later)"),
    FLAG("force", 'f', force, "allow setuid programs and a missing runtime library"),
    FLAG("json", 0, json,
         "with --print or --check: write one JSON object for each file, one a line"),
    TEXT("tree", 0, "DIR", folder.tree,
         "process all programs and libraries below DIR that use CUDA"),
    TEXT("venv", 0, "[DIR]", folder.venv,
         "process the interpreter and programs of the Python environment DIR (default: the one "
         "this tool is installed in)"),
    FLAG("list", 'l', lists.list, "list the files that you have patched and not restored"),
    FLAG("restore-all", 0, lists.restore_all, "restore all files that --list shows"),
    FLAG("repatch", 0, lists.repatch,
         "patch again the listed files that an upgrade has overwritten"),
    FLAG("all-users", 0, lists.all_users,
         "with --list, --restore-all, --repatch, as root: use the lists of all users, each as "
         "that user"),
    ROW("exclude", 0, "GLOB", LIST, 0, folder.excludes,
        "with --tree or --venv: skip these names or paths below DIR; repeatable"),
    ROW("jobs", 'j', "N", COUNT, 256, folder.jobs,
        "with --tree or --venv: process N files at a time (default: one for each processor)"),
    FLAG("no-sync", 0, no_sync,
         "do not wait for the disk (fsync); a power failure may then damage the file"),
    FLAG("quiet", 'q', quiet, "report problems only"),
    FLAG("version", 'V', version, "print the version"),
    FLAG("help", 'h', help, "print this help"),
#ifdef GS_PATCH_FAULT
    TEXT("fault-step", 0, "N", fault_text, "test build: die at step N"),
    TEXT("fault-byte", 0, "N", fault_byte_text, "test build: damage byte N of the new file"),
#endif
    {0},
};

void elf_options_help(FILE *to)
{
    fputs("Usage: gpushare-patch [OPTION]... FILE...\n"
          "       gpushare-patch [OPTION]... --tree DIR | --venv [DIR]\n"
          "       gpushare-patch [OPTION]... --list | --restore-all | --repatch\n"
          "Patch programs and libraries so that several CUDA processes can share a GPU.\n\n",
          to);
    gs_options_help(elf_options_table, to);
    fputs("\nExit status: 0 done, or nothing had to change; 1 failed; 2 wrong "
          "usage; 3 the file cannot be patched;\n4 nothing to do (it does not use "
          "CUDA; with --check or --restore: it is not patched).\nWith several "
          "files: the worst of the statuses, in the order 1, 3, 4, 0.\n",
          to);
}

static int check_tree(struct elf_options *options, struct gs_err *err)
{
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);

    if (options->folder.tree != NULL && options->folder.venv != NULL)
        return gs_err_set(err, -EINVAL, "--tree and --venv cannot be used together");
    if (options->file_count > 0 || options->output != NULL)
        return gs_err_set(err, -EINVAL,
                          "--tree and --venv cannot be used with FILE or --output");
    if (options->folder.jobs == 0)
        options->folder.jobs = processors < 1     ? 1
                               : processors > 256 ? 256
                                                  : (uint64_t)processors;
    options->within.programs_only = options->folder.venv != NULL;
    return 0;
}

static int check_lists(const struct elf_options *options, struct gs_err *err)
{
    if (options->lists.list + options->lists.restore_all + options->lists.repatch > 1)
        return gs_err_set(err, -EINVAL,
                          "--list, --restore-all and --repatch cannot be used together");
    if (options->file_count > 0 || options->folder.tree != NULL ||
        options->folder.venv != NULL || options->output != NULL || options->print ||
        options->check || options->restore)
        return gs_err_set(err, -EINVAL,
                          "--list, --restore-all and --repatch take no files or folders");
    if (options->lists.all_users && geteuid() != 0)
        return gs_err_set(err, -EINVAL, "--all-users is for root");
    return 0;
}

static int check_combination(struct elf_options *options, struct gs_err *err)
{
    if (options->help || options->version)
        return 0;
    if (options->lists.list || options->lists.restore_all || options->lists.repatch)
        return check_lists(options, err);
    if (options->lists.all_users)
        return gs_err_set(err, -EINVAL, "--all-users needs --list, --restore-all or --repatch");
    if (options->print + options->check + options->restore > 1)
        return gs_err_set(err, -EINVAL,
                          "--print, --check and --restore cannot be used together");
    if (options->json && !options->print && !options->check)
        return gs_err_set(err, -EINVAL, "--json can only be used with --print or --check");
    if (options->folder.tree != NULL || options->folder.venv != NULL)
        return check_tree(options, err);
    if (options->folder.excludes.count > 0 || options->folder.jobs != 0)
        return gs_err_set(err, -EINVAL,
                          "--exclude and --jobs can only be used with --tree or --venv");
    if (options->file_count == 0)
        return gs_err_set(err, -EINVAL, "no FILE given");
    if (options->output != NULL &&
        (options->print || options->check || options->file_count != 1))
        return gs_err_set(err, -EINVAL,
                          "--output needs exactly one FILE and cannot be used with --print or "
                          "--check");
    return 0;
}

int elf_options_parse(struct elf_options *options, int argc, char **argv, struct gs_err *err)
{
    static char environment[PATH_MAX];
    int index = 1, code;

    *options = (struct elf_options){0};
    code = gs_options_parse(elf_options_table, options, false, argc, argv, &index, err);
    if (code != 0)
        return code;
    options->files = argv + index;
    options->file_count = argc - index;
    if (options->folder.venv == gs_option_left_out) {
        options->folder.venv = environment;
        if (!gs_own_environment(environment))
            return gs_err_set(err, -EINVAL,
                              "--venv: no Python environment is active, and this tool is not "
                              "installed in one; give its folder");
    }
    return check_combination(options, err);
}

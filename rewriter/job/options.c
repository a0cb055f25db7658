/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: one table of options, from which parsing and --help are made.
 *
 * Owns the table. getopt keeps state of its own: main thread only.
 */
#include "rewriter/job/options.h"
#include "common/complete.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct option_row {
    const char *name;
    int letter;           /* 0: no short form */
    const char *argument; /* NULL: a flag (bool); else a text (const char *) */
    size_t field;         /* offset in struct elf_options */
    const char *help;
};

#define FIELD(name) offsetof(struct elf_options, name)

static const struct option_row rows[] = {
    {"print", 'p', NULL, FIELD(print), "report what each file is and how it would change"},
    {"check", 'c', NULL, FIELD(check),
     "report whether each file is patched and whether its runtime library "
     "exists"},
    {"restore", 'r', NULL, FIELD(restore),
     "restore each file to the exact bytes it had before it was patched"},
    {"output", 'o', "OUT", FIELD(output),
     "write the result to OUT and leave FILE unchanged (one FILE only)"},
    {"dry-run", 'n', NULL, FIELD(dry_run), "do everything except writing"},
    {"runtime", 0, "PATH", FIELD(runtime),
     "use this runtime library (default: the one installed with this tool)"},
    {"scope", 0, "process|object", FIELD(scope_text),
     "patch as a program or as a library (default: by the kind of file)"},
    {"any", 'a', NULL, FIELD(any),
     "also patch files that do not use CUDA themselves (they may load it "
     "later)"},
    {"force", 'f', NULL, FIELD(force), "allow setuid programs and a missing runtime library"},
    {"json", 0, NULL, FIELD(json),
     "with --print or --check: write one JSON object for each file, one a line"},
    {"tree", 0, "DIR", FIELD(folder.tree),
     "process all programs and libraries below DIR that use CUDA"},
    {"venv", 0, "DIR", FIELD(folder.venv),
     "process the interpreter and programs of the Python environment DIR (default: the one "
     "this tool is installed in)"},
    {"list", 'l', NULL, FIELD(lists.list),
     "list the files that you have patched and not restored"},
    {"restore-all", 0, NULL, FIELD(lists.restore_all), "restore all files that --list shows"},
    {"repatch", 0, NULL, FIELD(lists.repatch),
     "patch again the listed files that an upgrade has overwritten"},
    {"all-users", 0, NULL, FIELD(lists.all_users),
     "with --list, --restore-all, --repatch, as root: use the lists of all users, each as that "
     "user"},
    {"exclude", 0, "GLOB", FIELD(folder.excludes),
     "with --tree or --venv: skip these names or paths below DIR; repeatable"},
    {"jobs", 'j', "N", FIELD(folder.jobs_text),
     "with --tree or --venv: process N files at a time (default: one for each "
     "processor)"},
    {"no-sync", 0, NULL, FIELD(no_sync),
     "do not wait for the disk (fsync); a power failure may then damage the "
     "file"},
    {"quiet", 'q', NULL, FIELD(quiet), "report problems only"},
    {"version", 'V', NULL, FIELD(version), "print the version"},
    {"help", 'h', NULL, FIELD(help), "print this help"},
#ifdef GS_PATCH_FAULT
    {"fault-step", 0, "N", FIELD(fault_text), "test build: die at step N"},
    {"fault-byte", 0, "N", FIELD(fault_byte_text), "test build: damage byte N of the new file"},
#endif
};

#define ROW_COUNT  (sizeof rows / sizeof rows[0])
#define LONG_START 256 /* values of options without a letter */

int elf_options_complete(int argc, char **argv)
{
    struct gs_complete_option options[ROW_COUNT];
    struct gs_complete place;

    for (size_t i = 0; i < ROW_COUNT; i++)
        options[i] = (struct gs_complete_option){rows[i].name, rows[i].letter, rows[i].argument,
                                                 rows[i].help};
    gs_complete_read(&place, options, ROW_COUNT, false, 2, argc, argv);
    if (!gs_complete_options(&place, options, ROW_COUNT))
        gs_complete_argument(&place, "FILE");
    return fflush(stdout) == 0 ? 0 : 1;
}

void elf_options_help(FILE *to)
{
    fputs("Usage: gpushare-patch [OPTION]... FILE...\n"
          "       gpushare-patch [OPTION]... --tree DIR | --venv [DIR]\n"
          "       gpushare-patch [OPTION]... --list | --restore-all | --repatch\n"
          "Patch programs and libraries so that several CUDA processes can share a GPU.\n\n",
          to);
    for (size_t i = 0; i < ROW_COUNT; i++) {
        char left[64], letter[] = "-?,";

        letter[1] = (char)rows[i].letter;
        snprintf(left, sizeof left, "  %-3s --%s%s%s", rows[i].letter != 0 ? letter : "",
                 rows[i].name, rows[i].argument ? " " : "",
                 rows[i].argument ? rows[i].argument : "");
        gs_help_row(to, left, 25, rows[i].help, NULL);
    }
    fputs("\nExit status: 0 done, or nothing had to change; 1 failed; 2 wrong "
          "usage; 3 the file cannot be patched;\n4 nothing to do (it does not use "
          "CUDA; with --check or --restore: it is not patched).\nWith several "
          "files: the worst of the statuses, in the order 1, 3, 4, 0.\n",
          to);
}

static void fill_getopt(struct option longs[ROW_COUNT + 1], char *shorts)
{
    *shorts++ = ':';
    for (size_t i = 0; i < ROW_COUNT; i++) {
        longs[i] =
            (struct option){.name = rows[i].name,
                            .has_arg = rows[i].argument ? required_argument : no_argument,
                            .val = LONG_START + (int)i};
        if (rows[i].letter == 0)
            continue;
        *shorts++ = (char)rows[i].letter;
        if (rows[i].argument != NULL)
            *shorts++ = ':';
    }
    *shorts = '\0';
    longs[ROW_COUNT] = (struct option){0};
}

static int set_option(struct elf_options *options, const struct option_row *row,
                      const char *value)
{
    char *field = (char *)options + row->field;

    if (row->argument == NULL) {
        *(bool *)(void *)field = true;
    } else if (row->field == FIELD(folder.excludes)) {
        if (options->folder.exclude_count == ELF_EXCLUDES_MAX)
            return -EINVAL;
        options->folder.excludes[options->folder.exclude_count++] = value;
    } else {
        *(const char **)(void *)field = value;
    }
    return 0;
}

static int check_tree(struct elf_options *options, struct gs_err *err)
{
    long jobs = sysconf(_SC_NPROCESSORS_ONLN);
    char *end = NULL;

    if (options->folder.tree != NULL && options->folder.venv != NULL)
        return gs_err_set(err, -EINVAL, "--tree and --venv cannot be used together");
    if (options->file_count > 0 || options->output != NULL)
        return gs_err_set(err, -EINVAL,
                          "--tree and --venv cannot be used with FILE or --output");
    if (options->json && !options->print && !options->check)
        return gs_err_set(err, -EINVAL, "--json can only be used with --print or --check");
    if (options->folder.jobs_text != NULL) {
        jobs = strtol(options->folder.jobs_text, &end, 10);
        if (end == options->folder.jobs_text || *end != '\0' || jobs < 1 || jobs > 256)
            return gs_err_set(err, -EINVAL, "--jobs %s: is not a number from 1 to 256",
                              options->folder.jobs_text);
    }
    options->folder.jobs = jobs < 1 ? 1 : jobs > 256 ? 256 : (unsigned)jobs;
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
    if (options->scope_text != NULL && strcmp(options->scope_text, "process") == 0)
        options->scope = ELF_SCOPE_PROCESS;
    else if (options->scope_text != NULL && strcmp(options->scope_text, "object") == 0)
        options->scope = ELF_SCOPE_OBJECT;
    else if (options->scope_text != NULL)
        return gs_err_set(err, -EINVAL, "--scope %s: must be process or object",
                          options->scope_text);
    if (options->help || options->version)
        return 0;
    if (options->lists.list || options->lists.restore_all || options->lists.repatch)
        return check_lists(options, err);
    if (options->lists.all_users)
        return gs_err_set(err, -EINVAL, "--all-users needs --list, --restore-all or --repatch");
    if (options->print + options->check + options->restore > 1)
        return gs_err_set(err, -EINVAL,
                          "--print, --check and --restore cannot be used together");
    if (options->folder.tree != NULL || options->folder.venv != NULL)
        return check_tree(options, err);
    if (options->folder.exclude_count > 0 || options->folder.jobs_text != NULL)
        return gs_err_set(err, -EINVAL,
                          "--exclude and --jobs can only be used with --tree or --venv");
    if (options->file_count == 0)
        return gs_err_set(err, -EINVAL, "no FILE given");
    if (options->output != NULL &&
        (options->print || options->check || options->file_count != 1))
        return gs_err_set(err, -EINVAL,
                          "--output needs exactly one FILE and cannot be used with --print or "
                          "--check");
    if (options->json && !options->print && !options->check)
        return gs_err_set(err, -EINVAL, "--json can only be used with --print or --check");
    return 0;
}

/* The Python environment that this tool is installed in, or the active environment; NULL if there
 * is none. */
static char *find_own_environment(void)
{
    static char folder[PATH_MAX];
    char config[PATH_MAX + 16], *slash;
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);

    folder[n > 0 ? n : 0] = '\0';
    while ((slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        snprintf(config, sizeof config, "%s/pyvenv.cfg", folder);
        if (access(config, F_OK) == 0)
            return folder;
    }
    slash = getenv("VIRTUAL_ENV");
    return slash != NULL && *slash != '\0' ? slash : NULL;
}

static int refuse_no_environment(struct gs_err *err)
{
    return gs_err_set(err, -EINVAL,
                      "--venv: no Python environment is active, and this tool is not installed "
                      "in one; give its folder");
}

int elf_options_parse(struct elf_options *options, int argc, char **argv, struct gs_err *err)
{
    struct option longs[ROW_COUNT + 1];
    char shorts[2 * ROW_COUNT + 2];
    int c;

    *options = (struct elf_options){0};
    fill_getopt(longs, shorts);
    opterr = 0;
    while ((c = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const struct option_row *row = NULL;

        for (size_t i = 0; i < ROW_COUNT; i++)
            if (c == LONG_START + (int)i || (rows[i].letter != 0 && c == rows[i].letter))
                row = &rows[i];
        if (c == ':' && strcmp(argv[optind - 1], "--venv") == 0)
            options->folder.venv = find_own_environment();
        else if (c == ':')
            return gs_err_set(err, -EINVAL, "%s: needs a value", argv[optind - 1]);
        if (c == ':' && options->folder.venv == NULL)
            return refuse_no_environment(err);
        if (c == ':')
            continue;
        if (row == NULL)
            return gs_err_set(err, -EINVAL, "%s: no such option", argv[optind - 1]);
        if (row->field == FIELD(folder.venv) && optarg[0] == '-' &&
            optarg == argv[optind - 1]) {
            optind--; /* the next option: --venv had no value */
            optarg = find_own_environment();
            if (optarg == NULL)
                return refuse_no_environment(err);
        }
        if (set_option(options, row, optarg) != 0)
            return gs_err_set(err, -EINVAL, "--%s: may be given only %d times", row->name,
                              ELF_EXCLUDES_MAX);
    }
    options->files = argv + optind;
    options->file_count = argc - optind;
    return check_combination(options, err);
}

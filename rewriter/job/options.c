/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c: the table of options, and which of them go together. No state.
 */
#include "rewriter/job/options.h"
#include "common/fd.h"
#include "common/same.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/auxv.h>

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

static int check_combination(struct elf_options *options, struct gs_err *err)
{
    if (options->help || options->version)
        return 0;
    if (options->lists.list || options->lists.restore_all || options->lists.repatch) {
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
    if (options->lists.all_users)
        return gs_err_set(err, -EINVAL, "--all-users needs --list, --restore-all or --repatch");
    if (options->print + options->check + options->restore > 1)
        return gs_err_set(err, -EINVAL,
                          "--print, --check and --restore cannot be used together");
    if (options->json && !options->print && !options->check)
        return gs_err_set(err, -EINVAL, "--json can only be used with --print or --check");
    if (options->folder.tree != NULL || options->folder.venv != NULL) {
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

/* Finds the runtime library that patched files will load. The path goes into programs, so it
 * must be absolute: a relative path would be looked up from wherever the program starts. No
 * state, any thread. */

#define LIBRARY "libgpushare.so.1"

/* Removes "." and ".." from the start of a relative path, and goes up from `folder`, which has
 * no links in it, for each "..". */
static const char *go_up(char *folder, const char *path)
{
    while (path[0] == '.' && (path[1] == '/' || (path[1] == '.' && path[2] == '/'))) {
        if (path[1] == '.' && *folder != '\0') /* the root's parent is the root */
            *strrchr(folder, '/') = '\0';
        path = strchr(path, '/');
        path += strspn(path, "/");
    }
    return path;
}

/* Makes path absolute and keeps its links: if an upgrade changes a folder's link (current ->
 * 1.2), the patched file is to follow it. */
static int make_absolute(char out[PATH_MAX], const char *path)
{
    char folder[PATH_MAX] = "";
    size_t at = 0;
    int n;

    if (*path != '/' && getcwd(folder, sizeof folder) == NULL)
        return -errno;
    if (*path != '/' && *folder != '/')
        return -ENOENT; /* outside of this root */
    path = *path != '/' ? go_up(folder, path) : path;
    n = snprintf(out, PATH_MAX, "%s/%s", folder, path);
    if (n >= PATH_MAX)
        return -ENAMETOOLONG;
    for (size_t from = 0; out[from] != '\0'; from++) { /* "//" and "/./" say no more than "/" */
        if (out[from] == '/' && out[from + 1] == '/')
            continue;
        if (out[from] == '/' && out[from + 1] == '.' && out[from + 2] == '/') {
            from++;
            continue;
        }
        out[at++] = out[from];
    }
    out[at] = '\0';
    return 0;
}

/* The library beside this tool. Uses the path by which the tool was started if it leads to the
 * same library as the tool's real place, so that links to folders are kept. */
static int beside_tool(char out[PATH_MAX])
{
    static const char *const places[] = {"runtime/" LIBRARY, GS_LIBDIR "/" LIBRARY,
                                         "lib/" LIBRARY, "lib64/" LIBRARY};
    const char *started = (const char *)getauxval(AT_EXECFN);
    char self[PATH_MAX], path[PATH_MAX + 64], given[PATH_MAX], named[PATH_MAX + 64] = "";

    if (!gs_own_path(self, 2))
        return -ENOENT;
    if (started == NULL || make_absolute(given, started) != 0 || !gs_cut_parts(given, 2))
        *given = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s/%s", self, places[i]);
        snprintf(named, sizeof named, "%s/%s", given, places[i]);
        if (access(path, F_OK) == 0)
            return make_absolute(out, gs_same_file(named, path) ? named : path);
    }
    return -ENOENT;
}

bool elf_location_leads(const char *path, char real[PATH_MAX])
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');

    if (slash == NULL)
        return false;
    snprintf(folder, sizeof folder, "%.*s", slash > path ? (int)(slash - path) : 1, path);
    return realpath(folder, real) != NULL && strcmp(folder, real) != 0 &&
           realpath(path, real) != NULL;
}

/* If a runtime library is named, at least its folder must exist. */
static int find_named(char path[PATH_MAX], const char *wanted, struct gs_err *err)
{
    char folder[PATH_MAX];
    int ret = make_absolute(path, wanted);

    if (ret == 0) {
        memcpy(folder, path, sizeof folder);
        *(strrchr(folder, '/') + 1) = '\0';
        ret = access(folder, F_OK) == 0 ? 0 : -errno;
    }
    return ret == 0 ? 0
                    : gs_err_errno(err, ret, "%s: the runtime library does not exist", wanted);
}

int elf_location_find(char path[PATH_MAX], const char *wanted, bool force, struct gs_err *err)
{
    int ret = wanted != NULL ? find_named(path, wanted, err) : 0;

    if (ret != 0)
        return ret;
    if (wanted == NULL && beside_tool(path) != 0)
        snprintf(path, PATH_MAX, "%s", GS_FULL_LIBDIR "/" LIBRARY);
    if (strpbrk(path, "\n$:") != NULL)
        return gs_err_set(
            err, -EINVAL,
            "%s: the loader would misread this path; use one without $ and colons", path);
    if (!force && access(path, R_OK) != 0)
        return gs_err_set(
            err, -ENOENT,
            "%s: the runtime library does not exist, so patched programs would not "
            "start; give --runtime PATH, or --force if the library will be installed "
            "there",
            path);
    return 0;
}

int elf_location_check(const char *path, const char *name, unsigned machine, struct gs_err *err)
{
    Elf64_Ehdr header;
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return gs_err_errno(err, -errno, "%s: the runtime library cannot be opened", path);
    if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64)
        return gs_err_set(
            err, -ENOENT,
            "%s: is no library; give --runtime PATH of the runtime library (" LIBRARY ")",
            path);
    if (header.e_machine == machine)
        return 0;
    return gs_err_set(err, -ENOENT,
                      "%s: is for %s, but the runtime library %s is not; give --runtime PATH "
                      "of a matching one",
                      name, elf_machine_name(machine), path);
}

/* A folder with pyvenv.cfg in it is an environment; its programs are in its bin. */

#define MAX_LINKS 40 /* as many as the kernel follows */

/* Finds the environment to which programs of this folder belong: its parent, or the folder
 * itself. */
static bool find_environment(const char *folder, char environment[PATH_MAX])
{
    static const char *const ways[] = {"..", "."};
    char config[PATH_MAX + 32];

    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        snprintf(config, sizeof config, "%s/%s/pyvenv.cfg", folder, ways[i]);
        if (access(config, F_OK) != 0)
            continue;
        *strrchr(config, '/') = '\0';
        if (realpath(config, environment) != NULL)
            return true;
    }
    *environment = '\0';
    return false;
}

bool elf_environment_left(const char *name, const char *real, char environment[PATH_MAX])
{
    char link[PATH_MAX], folder[PATH_MAX], target[PATH_MAX];
    ssize_t n;

    *environment = '\0';
    snprintf(link, sizeof link, "%s", name);
    for (int i = 0; i < MAX_LINKS; i++) {
        const char *slash = strrchr(link, '/');
        char given[PATH_MAX] = "."; /* the folder that holds the link */
        size_t length;

        if (slash != NULL)
            snprintf(given, sizeof given, "%.*s", slash > link ? (int)(slash - link) : 1, link);
        n = readlink(link, target, sizeof target - 1);
        if (n <= 0 || realpath(given, folder) == NULL)
            return false;
        target[n] = '\0';
        length = find_environment(folder, environment) ? strlen(environment) : 0;
        if (length != 0 && (strncmp(real, environment, length) != 0 || real[length] != '/'))
            return true;
        *environment = '\0';
        if (*target == '/')
            memcpy(link, target, (size_t)n + 1);
        else if (snprintf(link, sizeof link, "%s/%s", folder, target) >= (int)sizeof link)
            return false;
    }
    return false;
}

bool elf_environment_is_python(const char *path)
{
    const char *base = basename(path);
    size_t length = strncmp(base, "python", 6) == 0 ? 6 : strncmp(base, "pypy", 4) == 0 ? 4 : 0;

    return length > 0 && strspn(base + length, "0123456789.dmt") == strlen(base + length);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * cc.c: gpushare-cc, gpushare-c++ and gpushare-nvcc: one program, which is called by three names.
 * It runs the real compiler with the same words, and puts the link part before them if the
 * command links. It becomes the compiler (exec), so status, output and signals are the compiler's
 * own.
 */
#include "common/options.h"
#include "wrap/args.h"
#include "common/fd.h"
#include "common/same.h"

struct gs_runtime_files {
    char library[PATH_MAX]; /* libgpushare.so.1, absolute */
    char folder[PATH_MAX];  /* the library's folder, for the program's run path */
    char list[PATH_MAX];    /* wrap.rsp: one --wrap=NAME a line */
};

/* Finds the files that gpushare-cc needs. Reads the environment and the file system;
 * changes and keeps nothing. */

#define RUNTIME_NAME "libgpushare.so.1"
#define LIST_NAME    "wrap.rsp"

static const struct {
    const char *name; /* by which we are called */
    const char *variable, *program, *what;
} compilers[] = {
    [GS_COMPILER_CC] = {"gpushare-cc", "GPUSHARE_CC", "cc", "C compiler"},
    [GS_COMPILER_CXX] = {"gpushare-c++", "GPUSHARE_CXX", "c++", "C++ compiler"},
    [GS_COMPILER_NVCC] = {"gpushare-nvcc", "GPUSHARE_NVCC", "nvcc", "CUDA compiler"},
};

/* Writes the resolved path of folder/tail if such a file can be read. */
static bool try_file(const char *folder, const char *tail, char *path)
{
    char joined[PATH_MAX];
    GS_FREE char *resolved_folder = NULL;
    char *slash;

    if (snprintf(joined, sizeof joined, "%s/%s", folder, tail) >= (int)sizeof joined ||
        access(joined, R_OK) != 0)
        return false;
    /* resolves the folder only: libgpushare.so.1 may be a link to the full version */
    slash = strrchr(joined, '/');
    *slash = '\0';
    resolved_folder = realpath(joined, NULL);
    return resolved_folder != NULL &&
           snprintf(path, PATH_MAX, "%s/%s", resolved_folder, slash + 1) < PATH_MAX;
}

/* Finds the files from the place of this program: first as in the build tree, then as installed.
 * library (may be NULL) replaces the library that would be found. 0, or a negative errno with
 * err saying which file is missing and what to do. */
static int gs_locate_runtime(const char *library, struct gs_runtime_files *files,
                             struct gs_err *err)
{
    char folder[PATH_MAX];
    char *slash;

    if (!gs_own_path(folder, 1))
        return gs_err_errno(err, -ENOENT, "/proc/self/exe");
    if (library != NULL) {
        if (!try_file(*library == '/' ? "" : ".", library, files->library))
            return gs_err_set(
                err, -ENOENT,
                "there is no library %s; --gpushare-runtime needs the path of " RUNTIME_NAME,
                library);
    } else if (!try_file(folder, "../runtime/" RUNTIME_NAME, files->library) &&
               !try_file(folder, GS_LIBDIR_FROM_BINDIR "/" RUNTIME_NAME, files->library)) {
        return gs_err_set(
            err, -ENOENT,
            "no " RUNTIME_NAME " in %s/" GS_LIBDIR_FROM_BINDIR
            "; install gpushare completely, or name it with --gpushare-runtime=PATH",
            folder);
    }
    if (!try_file(folder, LIST_NAME, files->list) &&
        !try_file(folder, GS_LIBDIR_FROM_BINDIR "/gpushare/" LIST_NAME, files->list))
        return gs_err_set(err, -ENOENT,
                          "no " LIST_NAME " in %s/" GS_LIBDIR_FROM_BINDIR
                          "/gpushare; install gpushare completely",
                          folder);
    memcpy(files->folder, files->library, sizeof files->folder);
    slash = strrchr(files->folder, '/');
    slash[slash == files->folder ? 1 : 0] = '\0';
    return 0;
}

static bool is_ourselves(const char *path)
{
    return gs_same_file("/proc/self/exe", path);
}

/* Finds the path of a name as exec would, except for this program itself. */
static bool search_path(const char *name, char *found)
{
    const char *path = getenv("PATH");

    if (path == NULL)
        path = "/usr/local/bin:/usr/bin:/bin";
    for (;;) {
        size_t length = strcspn(path, ":");

        if (snprintf(found, PATH_MAX, "%.*s/%s", length != 0 ? (int)length : 1,
                     length != 0 ? path : ".", name) < PATH_MAX &&
            gs_is_program(found) && !is_ourselves(found))
            return true;
        if (path[length] == '\0')
            return false;
        path += length + 1;
    }
}

/* nvcc is seldom on PATH: looks in the toolkit's usual places. */
static bool search_toolkit(char *found)
{
    const char *home = getenv("CUDA_HOME");
    const char *const folders[] = {home, "/usr/local/cuda", "/opt/cuda"};

    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        if (folders[i] != NULL &&
            snprintf(found, PATH_MAX, "%s/bin/nvcc", folders[i]) < PATH_MAX &&
            gs_is_program(found) && !is_ourselves(found))
            return true;
    }
    return false;
}

/* Finds the first word of a command; the later words (ccache's compiler) must not be this
 * program either. */
static int resolve_command(enum gs_compiler compiler, bool by_default, struct gs_args *command,
                           struct gs_err *err)
{
    const char *name = command->item[0];
    char found[PATH_MAX];
    char *copy;

    for (size_t i = 0; i < command->count; i++)
        if (strchr(command->item[i], '/') != NULL && is_ourselves(command->item[i]))
            return gs_err_set(err, -ELOOP, "%s is gpushare-cc itself; set %s to the real %s",
                              command->item[i], compilers[compiler].variable,
                              compilers[compiler].what);
    if (strchr(name, '/') != NULL)
        return gs_is_program(name)
                   ? 0
                   : gs_err_set(err, -ENOENT, "%s is not an executable program; set %s to a %s",
                                name, compilers[compiler].variable, compilers[compiler].what);
    if (!search_path(name, found) &&
        !(by_default && compiler == GS_COMPILER_NVCC && search_toolkit(found)))
        return gs_err_set(err, -ENOENT,
                          "there is no %s '%s' on PATH; install one or set %s to its path",
                          compilers[compiler].what, name, compilers[compiler].variable);
    copy = strdup(found);
    if (copy == NULL)
        return -ENOMEM;
    free(command->item[0]);
    command->item[0] = copy;
    return 0;
}

/* Appends the words of the real compiler's command: asked (may be NULL: --gpushare-compiler),
 * else GPUSHARE_CC, GPUSHARE_CXX or GPUSHARE_NVCC, else cc, c++ or nvcc. The first word becomes
 * a path. gpushare-cc itself is skipped on PATH, and refused if it is named. 0 or a negative
 * errno with err filled. */
static int gs_locate_compiler(enum gs_compiler compiler, const char *asked,
                              struct gs_args *command, struct gs_err *err)
{
    const char *text = asked != NULL ? asked : getenv(compilers[compiler].variable);
    bool by_default = text == NULL || text[strspn(text, " \t")] == '\0';
    int r = 0;

    /* a path with a blank in it is taken as a whole if there is such a file */
    if (by_default)
        r = gs_args_push(command, "%s", compilers[compiler].program);
    else if (strchr(text, '/') != NULL && gs_is_program(text))
        r = gs_args_push(command, "%s", text);
    else
        r = gs_args_split(command, text);
    r = r ?: resolve_command(compiler, by_default, command, err);
    return r == -ENOMEM ? gs_err_set(err, r, "out of memory") : r;
}

#define LEVEL_VARIABLE "GPUSHARE_CC_LEVEL"
#define LEVEL_MAX      12 /* a build tool, nvcc and its host compiler nest three deep */

enum show {
    SHOW_NOTHING, /* run */
    SHOW_COMMAND,
    SHOW_LINK,
    SHOW_COMPILE,
};

struct request {
    const char *name; /* as called */
    enum gs_compiler compiler;
    enum show show;
    const char *asked_compiler, *asked_runtime;
    struct gs_args words; /* for the compiler */
};

enum own_option {
    OWN_SHOWME,
    OWN_SHOWME_LINK,
    OWN_SHOWME_COMPILE,
    OWN_COMPILER,
    OWN_RUNTIME,
    OWN_VERSION,
    OWN_HELP,
    OWN_COUNT,
};

static const struct gs_option own_options[OWN_COUNT + 1] = {
    [OWN_SHOWME] = {.name = "showme", .help = "print the whole command instead of running it"},
    [OWN_SHOWME_LINK] = {.name = "showme:link",
                         .help = "print the arguments that are added to a link"},
    [OWN_SHOWME_COMPILE] = {.name = "showme:compile",
                            .help =
                                "print the arguments that are added to a compilation (none)"},
    [OWN_COMPILER] =
        {"gpushare-compiler=", "CMD",
         .help = "run this compiler (default: GPUSHARE_CC, GPUSHARE_CXX or\n"
                 "                            GPUSHARE_NVCC; without these cc, c++ or nvcc)"},
    [OWN_RUNTIME] = {"gpushare-runtime=", "PATH",
                     .help = "link with this libgpushare.so.1 (default: the installed one)"},
    [OWN_VERSION] = {.name = "gpushare-version", .help = "print the version of gpushare"},
    [OWN_HELP] = {.name = "gpushare-help", .help = "print this help"},
};

static int print_usage(void)
{
    fputs(
        "Usage: gpushare-cc|gpushare-c++|gpushare-nvcc [OPTION]... COMPILER-ARGUMENT...\n"
        "Compiles as cc, c++ or nvcc does, and links programs so that they share the GPU.\n\n",
        stdout);
    for (size_t i = 0; i < OWN_COUNT; i++) {
        const struct gs_option *row = &own_options[i];
        char left[40];

        snprintf(left, sizeof left, "--%s%s", row->name, row->argument ? row->argument : "");
        printf("  %-25s %s\n", left, row->help);
    }
    return puts("\nAll other arguments go to the compiler. Manual page: gpushare-cc(1).") < 0
               ? -EIO
               : 1;
}

/* Finds the option of our own that a word is; OWN_COUNT: none. */
static enum own_option find_own(const char *word, const char **value)
{
    if (strcmp(word, "-showme") == 0) /* as Open MPI's compilers have it */
        return OWN_SHOWME;
    for (unsigned i = 0; i < OWN_COUNT && strncmp(word, "--", 2) == 0; i++) {
        const size_t length = strlen(own_options[i].name);

        *value = word + 2 + length;
        if (own_options[i].argument != NULL
                ? strncmp(word + 2, own_options[i].name, length) == 0
                : strcmp(word + 2, own_options[i].name) == 0)
            return (enum own_option)i;
    }
    return OWN_COUNT;
}

/* Takes our own options out of argv; the other words become request->words. Positive: nothing is
 * left to do (help or version was printed). */
static int read_words(struct request *request, char **argv, struct gs_err *err)
{
    int r = 0;

    for (size_t i = 1; r == 0 && argv[i] != NULL; i++) {
        const char *word = argv[i], *value = NULL;

        switch (find_own(word, &value)) {
        case OWN_SHOWME:
            request->show = SHOW_COMMAND;
            break;
        case OWN_SHOWME_LINK:
            request->show = SHOW_LINK;
            break;
        case OWN_SHOWME_COMPILE:
            request->show = SHOW_COMPILE;
            break;
        case OWN_COMPILER:
            request->asked_compiler = value;
            break;
        case OWN_RUNTIME:
            request->asked_runtime = value;
            break;
        case OWN_HELP:
            return print_usage();
        case OWN_VERSION:
            return puts("gpushare " GS_VERSION) < 0 ? -EIO : 1;
        default:
            if (strncmp(word, "--gpushare-", 11) == 0)
                return gs_err_set(err, -EINVAL,
                                  "%s is not an option of gpushare-cc; see --gpushare-help",
                                  word);
            r = gs_args_push(&request->words, "%s", word);
        }
    }
    return r;
}

/* Refuses some characters: paths become parts of lists that commas separate, and nvcc passes
 * them to a shell. */
static int check_path(enum gs_compiler compiler, const char *path, struct gs_err *err)
{
    const char *bad = compiler == GS_COMPILER_NVCC ? ",\"\\$`\n" : ",\n";

    if (strpbrk(path, bad) == NULL)
        return 0;
    return gs_err_set(err, -EINVAL,
                      "%s contains a character that cannot be passed through the compiler to "
                      "the linker (one of: comma, newline%s); install gpushare in another "
                      "folder",
                      path, compiler == GS_COMPILER_NVCC ? ", \" \\ $ `" : "");
}

/* The link part. It comes first among the inputs, so that libgpushare is the first DT_NEEDED and
 * its dlsym is the first that is found. --no-as-needed: perhaps nothing but __wrap_ names refers to
 * it. */
static int push_link_part(enum gs_compiler compiler, const struct gs_runtime_files *files,
                          bool clang_host, struct gs_args *args, struct gs_err *err)
{
    int r = check_path(compiler, files->library, err) ?: check_path(compiler, files->list, err);

    if (r != 0)
        return r;
    if (compiler == GS_COMPILER_NVCC) {
        /* With -Xcompiler, not -Xlinker: nvcc puts that before the inputs. "\," keeps a comma
         * from nvcc, and the double quotes keep blanks from the shell that nvcc starts. Host
         * compilers ignore -Wl in the steps before the link (clang warns, unless told not to). */
        r = gs_args_push(
            args,
            "-Xcompiler=-Wl\\,--push-state\\,--no-as-needed\\,\"%s\"\\,--pop-state,"
            "-Wl\\,-rpath\\,\"%s\",-Wl\\,@\"%s\"%s",
            files->library, files->folder, files->list,
            clang_host ? ",-Wno-unused-command-line-argument" : "");
    } else {
        r = gs_args_push(args, "-Wl,--push-state,--no-as-needed,%s,--pop-state",
                         files->library);
        r = r ?: gs_args_push(args, "-Wl,-rpath,%s", files->folder);
        r = r ?: gs_args_push(args, "-Wl,@%s", files->list);
    }
    return r == 0 ? 0 : gs_err_set(err, r, "out of memory");
}

static int make_command(const struct request *request, struct gs_args *command,
                        struct gs_err *err)
{
    struct gs_phase phase;
    struct gs_runtime_files files;
    int r = gs_phase_read(request->compiler, &request->words, &phase, err);

    if (r != 0 || request->show == SHOW_COMPILE)
        return r;
    if (phase.links && phase.is_static)
        return gs_err_set(
            err, -EINVAL,
            "a fully static program cannot load libgpushare; link without -static "
            "and -static-pie (a static libcudart is fine)");
    if (request->show != SHOW_LINK)
        r = gs_locate_compiler(request->compiler, request->asked_compiler, command, err);
    if (r == 0 && (phase.links || request->show == SHOW_LINK)) {
        r = gs_locate_runtime(request->asked_runtime, &files, err);
        r = r ?: push_link_part(request->compiler, &files, phase.clang_host, command, err);
    }
    for (size_t i = 0; r == 0 && request->show != SHOW_LINK && i < request->words.count; i++)
        r = gs_args_push(command, "%s", request->words.item[i]);
    return r == -ENOMEM ? gs_err_set(err, r, "out of memory") : r;
}

/* Counts nested calls: a PATH on which another wrapper calls us back would never end. */
static int count_level(struct gs_err *err)
{
    const char *text = getenv(LEVEL_VARIABLE);
    long level = text != NULL ? strtol(text, NULL, 10) : 0;
    char next[24];

    if (level < 0 || level >= LEVEL_MAX)
        return gs_err_set(
            err, -ELOOP,
            "the compiler called gpushare-cc again, %d levels deep; set GPUSHARE_CC, "
            "GPUSHARE_CXX or GPUSHARE_NVCC to the real compiler",
            LEVEL_MAX);
    snprintf(next, sizeof next, "%ld", level + 1);
    return setenv(LEVEL_VARIABLE, next, 1) == 0 ? 0 : gs_err_errno(err, -errno, "environment");
}

static int run_compiler(const struct request *request, struct gs_err *err)
{
    struct gs_args command = {0};
    int r = make_command(request, &command, err);

    if (r == -ENOENT && request->show == SHOW_NOTHING && request->words.count == 1 &&
        strcmp(request->words.item[0], "--version") == 0) { /* no compiler that could answer */
        r = printf("%s (gpushare) " GS_VERSION "; no compiler was found\n", request->name) < 0
                ? -EIO
                : 0;
    } else if (r == 0 && request->show != SHOW_NOTHING) {
        gs_args_print(&command, stdout);
        if (fflush(stdout) != 0)
            r = gs_err_errno(err, -errno, "standard output");
    } else if (r == 0 && command.count != 0) {
        r = count_level(err);
        if (r == 0) {
            execv(command.item[0], command.item);
            r = gs_err_errno(err, -errno, "%s", command.item[0]);
        }
    }
    gs_args_deinit(&command);
    return r;
}

int main(int argc, char **argv)
{
    struct request request = {.name = argc > 0 ? basename(argv[0]) : ""};
    const unsigned count = sizeof compilers / sizeof *compilers;
    struct gs_err err = {0};
    int r;

    while (request.compiler < count &&
           strcmp(request.name, compilers[request.compiler].name) != 0)
        request.compiler++;
    if (request.compiler == count) {
        fprintf(stderr,
                "gpushare-cc: called as '%s'; call it gpushare-cc, gpushare-c++ or "
                "gpushare-nvcc\n",
                request.name);
        return 2;
    }
    if (gs_complete_asked(argc, argv))
        return gs_complete_line(own_options, false, "FILE", argc, argv);
    r = read_words(&request, argv, &err) ?: run_compiler(&request, &err);
    gs_args_deinit(&request.words);
    if (r >= 0)
        return 0;
    if (err.code == 0)
        gs_err_errno(&err, r, "cannot go on");
    fprintf(stderr, "%s: %s\n", request.name, err.text);
    return r == -EINVAL ? 2 : 1;
}

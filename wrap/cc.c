/* SPDX-License-Identifier: Apache-2.0
 *
 * cc.c: gpushare-cc, gpushare-c++ and gpushare-nvcc: one program, which is called by three names.
 * It runs the real compiler with the same words, and puts the link part before them if the
 * command links. It becomes the compiler (exec), so status, output and signals are the compiler's
 * own.
 */
#include "common/complete.h"
#include "wrap/args.h"
#include "wrap/locate.h"
#include "wrap/phase.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static const struct gs_complete_option own_options[OWN_COUNT] = {
    [OWN_SHOWME] = {"showme", 0, NULL, "print the whole command instead of running it"},
    [OWN_SHOWME_LINK] = {"showme:link", 0, NULL,
                         "print the arguments that are added to a link"},
    [OWN_SHOWME_COMPILE] = {"showme:compile", 0, NULL,
                            "print the arguments that are added to a compilation (none)"},
    [OWN_COMPILER] =
        {"gpushare-compiler=", 0, "CMD",
         "run this compiler (default: GPUSHARE_CC, GPUSHARE_CXX or\n"
         "                            GPUSHARE_NVCC; without these cc, c++ or nvcc)"},
    [OWN_RUNTIME] = {"gpushare-runtime=", 0, "PATH",
                     "link with this libgpushare.so.1 (default: the installed one)"},
    [OWN_VERSION] = {"gpushare-version", 0, NULL, "print the version of gpushare"},
    [OWN_HELP] = {"gpushare-help", 0, NULL, "print this help"},
};

static int print_usage(void)
{
    fputs(
        "Usage: gpushare-cc|gpushare-c++|gpushare-nvcc [OPTION]... COMPILER-ARGUMENT...\n"
        "Compiles as cc, c++ or nvcc does, and links programs so that they share the GPU.\n\n",
        stdout);
    for (size_t i = 0; i < OWN_COUNT; i++) {
        const struct gs_complete_option *row = &own_options[i];
        char left[40];

        snprintf(left, sizeof left, "--%s%s", row->name, row->argument ? row->argument : "");
        printf("  %-25s %s\n", left, row->help);
    }
    return puts("\nAll other arguments go to the compiler. Manual page: gpushare-cc(1).") < 0
               ? -EIO
               : 1;
}

/* Prints what a shell may offer for the last word (common/complete.h). */
static int complete_line(int argc, char **argv)
{
    struct gs_complete place;

    gs_complete_read(&place, own_options, OWN_COUNT, false, 2, argc, argv);
    if (!gs_complete_options(&place, own_options, OWN_COUNT))
        gs_complete_argument(&place, "FILE");
    return fflush(stdout) == 0 ? 0 : 1;
}

static int name_to_compiler(const char *name, enum gs_compiler *compiler)
{
    static const struct {
        const char *name;
        enum gs_compiler compiler;
    } names[] = {
        {"gpushare-cc", GS_COMPILER_CC},
        {"gpushare-c++", GS_COMPILER_CXX},
        {"gpushare-nvcc", GS_COMPILER_NVCC},
    };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) == 0) {
            *compiler = names[i].compiler;
            return 0;
        }
    }
    return -EINVAL;
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
    int r = check_path(compiler, files->library, err);

    if (r == 0)
        r = check_path(compiler, files->list, err);
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
        if (r == 0)
            r = gs_args_push(args, "-Wl,-rpath,%s", files->folder);
        if (r == 0)
            r = gs_args_push(args, "-Wl,@%s", files->list);
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
        if (r == 0)
            r = push_link_part(request->compiler, &files, phase.clang_host, command, err);
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

static bool asks_version(const struct request *request)
{
    return request->show == SHOW_NOTHING && request->words.count == 1 &&
           strcmp(request->words.item[0], "--version") == 0;
}

static int run_compiler(const struct request *request, struct gs_err *err)
{
    struct gs_args command = {0};
    int r = make_command(request, &command, err);

    if (r == -ENOENT && asks_version(request)) { /* no compiler here that could answer */
        gs_args_deinit(&command);
        return printf("%s (gpushare) " GS_VERSION "; no compiler was found\n", request->name) <
                       0
                   ? -EIO
                   : 0;
    }

    if (r == 0 && request->show != SHOW_NOTHING) {
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
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    struct request request = {.name = slash != NULL ? slash + 1 : argc > 0 ? argv[0] : ""};
    struct gs_err err = {0};
    int r;

    if (name_to_compiler(request.name, &request.compiler) != 0) {
        fprintf(stderr,
                "gpushare-cc: called as '%s'; call it gpushare-cc, gpushare-c++ or "
                "gpushare-nvcc\n",
                request.name);
        return 2;
    }
    if (gs_complete_asked(argc, argv))
        return complete_line(argc, argv);
    r = read_words(&request, argv, &err);
    if (r == 0)
        r = run_compiler(&request, &err);
    else if (r > 0)
        r = 0;
    gs_args_deinit(&request.words);
    if (r == 0)
        return 0;
    if (err.code == 0)
        gs_err_errno(&err, r, "cannot go on");
    fprintf(stderr, "%s: %s\n", request.name, err.text);
    return r == -EINVAL ? 2 : 1;
}

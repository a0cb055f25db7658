/* SPDX-License-Identifier: Apache-2.0
 *
 * args.c: owns lists of command line words. Invariant: item[count] is NULL once anything was
 * pushed, so that item can be handed to exec. No global state; one list belongs to one thread.
 */
#include "wrap/args.h"
#include "common/fd.h"

#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>

/* longer response files are refused: no compiler's own limit is lower than ARG_MAX, and no real
 * file is so long */
#define RESPONSE_MAX ((off_t)64 << 20)

void gs_args_deinit(struct gs_args *args)
{
    if (args == NULL)
        return;
    for (size_t i = 0; i < args->count; i++)
        free(args->item[i]);
    free(args->item);
    *args = (struct gs_args){0};
}

static int push_owned(struct gs_args *args, char *word)
{
    if (args->count + 1 >= args->capacity) {
        size_t capacity = args->capacity != 0 ? 2 * args->capacity : 32;
        char **item = reallocarray(args->item, capacity, sizeof *item);

        if (item == NULL) {
            free(word);
            return -ENOMEM;
        }
        args->item = item;
        args->capacity = capacity;
    }
    args->item[args->count++] = word;
    args->item[args->count] = NULL;
    return 0;
}

int gs_args_push(struct gs_args *args, const char *format, ...)
{
    va_list ap;
    char *word;
    int length;

    va_start(ap, format);
    length = vasprintf(&word, format, ap);
    va_end(ap);
    return length < 0 ? -ENOMEM : push_owned(args, word);
}

/* Copies one word from *text to word and moves *text behind it. */
static void copy_word(const char **text, char *word)
{
    const char *p = *text;
    char quote = '\0';

    for (; *p != '\0' && (quote != '\0' || strchr(" \t\r\n\f\v", *p) == NULL); p++) {
        if (*p == quote) {
            quote = '\0';
        } else if (quote == '\0' && (*p == '\'' || *p == '"')) {
            quote = *p;
        } else {
            if (*p == '\\' && quote != '\'' && p[1] != '\0')
                p++;
            *word++ = *p;
        }
    }
    *word = '\0';
    *text = p;
}

int gs_args_split(struct gs_args *args, const char *text)
{
    char *scratch = malloc(strlen(text) + 1); /* no word is longer than the text */
    int r = scratch != NULL ? 0 : -ENOMEM;

    while (r == 0 && *(text += strspn(text, " \t\r\n\f\v")) != '\0') {
        copy_word(&text, scratch);
        r = gs_args_push(args, "%s", scratch);
    }
    free(scratch);
    return r;
}

int gs_args_read(struct gs_args *args, const char *path, struct gs_err *err)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC);
    GS_FREE char *text = NULL;
    struct stat st;
    ssize_t n;

    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR
                   ? -ENOENT
                   : gs_err_errno(err, -errno, "response file %s", path);
    if (fstat(fd, &st) != 0)
        return gs_err_errno(err, -errno, "response file %s", path);
    if (!S_ISREG(st.st_mode)) /* a pipe could be read only once, and the compiler wants it */
        return gs_err_set(err, -EINVAL,
                          "response file %s is not a regular file; write the options into a "
                          "regular file",
                          path);
    if (st.st_size > RESPONSE_MAX)
        return gs_err_set(err, -EFBIG, "response file %s is longer than 64 MiB", path);
    text = malloc((size_t)st.st_size + 1);
    n = text != NULL ? gs_fd_read(fd, text, (size_t)st.st_size) : -ENOMEM;
    if (n < 0)
        return gs_err_errno(err, (int)n, "response file %s", path);
    text[n] = '\0';
    return gs_args_split(args, text);
}

void gs_args_print(const struct gs_args *args, FILE *out)
{
    for (size_t i = 0; i < args->count; i++) {
        const char *word = args->item[i];
        bool plain = *word != '\0' &&
                     word[strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                       "0123456789_@%+=:,./-")] == '\0';

        if (i != 0)
            fputc(' ', out);
        if (plain) {
            fputs(word, out);
            continue;
        }
        fputc('\'', out);
        for (const char *p = word; *p != '\0'; p++) {
            if (*p == '\'')
                fputs("'\\''", out);
            else
                fputc(*p, out);
        }
        fputc('\'', out);
    }
    fputc('\n', out);
}

/* Reads compiler command lines, response files included, by lists of options (GCC manual "Option
 * Summary", clang --help, nvcc 13.0 --help). No state, any thread. */

/* The options of one family of compilers. Every list ends with NULL. */
struct gs_grammar {
    const char *const *stop;        /* words that end the work before the link */
    const char *const *stop_prefix; /* beginnings of such words */
    const char *const *value;       /* words whose value is the next word */
    const char *const *file;        /* words whose next word (or "=...") is a response file */
    const char *const *header;      /* endings of inputs that are compiled to a .gch */
};

/* otherwise each word gets a line of its own */
/* clang-format off */
static const char *const gs_grammar_none[] = {NULL};

static const char *const gcc_stop[] = {
    "-c", "-S", "-E", "-M", "-MM", "-r", "-fsyntax-only", "--version", "-cc1", "-cc1as",
    "--analyze", "--precompile", "-emit-ast", "--compile", "--assemble", "--preprocess",
    "--dependencies", "--user-dependencies", NULL};
static const char *const gcc_stop_prefix[] = {
    "-print-", "--print-", "-dumpm", "-dumpv", "-dumps", "-dumpf", "--help", "--target-help",
    NULL};
static const char *const gcc_value[] = {
    "-o", "-x", "-I", "-L", "-D", "-U", "-A", "-B", "-T", "-u", "-z", "-e", "-l", "-include",
    "-imacros", "-isystem", "-idirafter", "-iquote", "-iprefix", "-iwithprefix",
    "-iwithprefixbefore", "-isysroot", "-imultilib", "-imultiarch", "-MF", "-MT", "-MQ",
    "-Xlinker", "-Xassembler", "-Xpreprocessor", "-Xclang", "-Xarch_host", "-Xarch_device",
    "-Xcuda-ptxas", "-Xcuda-fatbinary", "-Xopenmp-target", "-mllvm", "-mthread-model",
    "-target", "--param", "-aux-info", "-dumpbase", "-dumpbase-ext", "-dumpdir", "-wrapper",
    "-specs", "--output", "--language", "--entry", "--for-linker", "-arch", "--sysroot",
    "-fplugin-arg", "-gcc-toolchain", "--config", "-serialize-diagnostics",
    "-working-directory", NULL};
static const char *const gcc_header[] = {
    ".h", ".hh", ".hpp", ".hxx", ".h++", ".H", ".tcc", NULL};

static const char *const nvcc_stop[] = {
    "-c", "--compile", "-dc", "--device-c", "-dw", "--device-w", "-dlink", "--device-link",
    "-lib", "--lib", "-E", "--preprocess", "-ptx", "--ptx", "-cubin", "--cubin", "-fatbin",
    "--fatbin", "-optix-ir", "--optix-ir", "-ltoir", "--ltoir", "-cuda", "--cuda", "-M",
    "--generate-dependencies", "-MM", "--generate-nonsystem-dependencies", "-dryrun",
    "--dryrun", "-V", "--version", "-h", "--help", "-code-ls", "--list-gpu-code", "-arch-ls",
    "--list-gpu-arch", "-clean", "--clean-targets", "-clean-targets", "-r",
    "--relocatable-link", "-fdevice-syntax-only", "--fdevice-syntax-only", NULL};
static const char *const nvcc_value[] = {
    "-MF", "--dependency-output", "-o", "--output-file", "-include", "--pre-include", "-l",
    "--library", "-D", "--define-macro", "-U", "--undefine-macro", "-I", "--include-path",
    "-isystem", "--system-include", "-L", "--library-path", "-odir", "--output-directory",
    "-ccbin", "--compiler-bindir", "-arbin", "--archiver-binary", "-cudart", "--cudart",
    "-cudadevrt", "--cudadevrt", "-ldir", "--libdevice-directory", "-target-dir",
    "--target-directory", "-opt-info", "--optimization-info", "-O", "--optimize", "-dopt",
    "--dopt", "-ftemplate-backtrace-limit", "--ftemplate-backtrace-limit", "-ftemplate-depth",
    "--ftemplate-depth", "-x", "--x", "-std", "--std", "-m", "--machine", "-Xcompiler",
    "--compiler-options", "-Xlinker", "--linker-options", "-Xarchive", "--archive-options",
    "-Xptxas", "--ptxas-options", "-Xnvlink", "--nvlink-options", "-Xfatbin", "-Xcudafe",
    "-static-global-template-stub", "--static-global-template-stub",
    "-device-entity-has-hidden-visibility", "--device-entity-has-hidden-visibility", "-t",
    "--threads", "-split-compile", "--split-compile", "-split-compile-extended",
    "--split-compile-extended", "-fdevice-time-trace", "--fdevice-time-trace", "-keep-dir",
    "--keep-dir", "-time", "--time", "-run-args", "--run-args", "-idp", "--input-drive-prefix",
    "-ddp", "--dependency-drive-prefix", "-dp", "--drive-prefix", "-MT",
    "--dependency-target-name", "-arch", "--gpu-architecture", "-code", "--gpu-code",
    "-gencode", "--generate-code", "-rdc", "--relocatable-device-code", "-e", "--entries",
    "-maxrregcount", "--maxrregcount", "-ftz", "--ftz", "-prec-div", "--prec-div",
    "-prec-sqrt", "--prec-sqrt", "-fmad", "--fmad", "-default-stream", "--default-stream",
    "-diag-error", "--diag-error", "-diag-suppress", "--diag-suppress", "-diag-warn",
    "--diag-warn", "-hls", "--host-linker-script", "-brief-diag", "--brief-diagnostics",
    "-jtd", "--jump-table-density", "-device-stack-protector", "--device-stack-protector",
    "-compress-mode", "--compress-mode", "-frandom-seed", "--frandom-seed", "-sanitize",
    "--sanitize", "-qpp-config", "--qpp-config", NULL};
static const char *const nvcc_file[] = {
    "-optf", "--options-file", NULL};
/* clang-format on */

static const struct gs_grammar gs_grammar_gcc = {gcc_stop, gcc_stop_prefix, gcc_value,
                                                 gs_grammar_none, gcc_header};
static const struct gs_grammar gs_grammar_nvcc = {nvcc_stop, gs_grammar_none, nvcc_value,
                                                  nvcc_file, gs_grammar_none};

#define RESPONSE_DEPTH 16

struct reader {
    const struct gs_grammar *grammar;
    struct gs_phase *phase;
    bool has_source; /* an input that is no header */
};

static bool in_list(const char *const *list, const char *word)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, word) == 0)
            return true;
    return false;
}

/* If the word is "option=value" with an option of the list, returns the value, else NULL. */
static const char *value_after_equals(const char *const *list, const char *word)
{
    for (; *list != NULL; list++) {
        size_t length = strlen(*list);

        if (strncmp(*list, word, length) == 0 && word[length] == '=')
            return word + length + 1;
    }
    return NULL;
}

/* Appends the words to flat, and replaces response files by their words, as compilers do before
 * they read anything: an option at the end of a file takes its value from behind the file. */
static int flatten_words(const struct gs_grammar *grammar, const struct gs_args *words,
                         struct gs_args *flat, unsigned depth, struct gs_err *err)
{
    for (size_t i = 0; i < words->count; i++) {
        const char *word = words->item[i];
        const char *path = value_after_equals(grammar->file, word);
        struct gs_args inner = {0};
        int r = -ENOENT;

        if (grammar->file == gs_grammar_none && word[0] == '@' && word[1] != '\0')
            path = word + 1;
        else if (in_list(grammar->file, word) && i + 1 < words->count)
            path = words->item[++i];
        if (path != NULL && depth >= RESPONSE_DEPTH)
            return gs_err_set(err, -ELOOP,
                              "response file %s: nested %d levels deep; does it name itself?",
                              path, RESPONSE_DEPTH);
        if (path != NULL)
            r = gs_args_read(&inner, path, err);
        if (r == 0)
            r = flatten_words(grammar, &inner, flat, depth + 1, err);
        else if (r == -ENOENT) /* not there: compilers take the word literally */
            r = gs_args_push(flat, "%s", word);
        gs_args_deinit(&inner);
        if (r != 0)
            return r;
    }
    return 0;
}

/* -Wl,LIST or the value of -Xlinker: does it ask ld for a relocatable object? */
static bool linker_makes_object(const char *list)
{
    while (list != NULL) {
        size_t length = strcspn(list, ",");

        if ((length == 2 && strncmp(list, "-r", 2) == 0) ||
            (length == 13 && strncmp(list, "--relocatable", 13) == 0) ||
            (length == 2 && strncmp(list, "-i", 2) == 0))
            return true;
        list = list[length] == ',' ? list + length + 1 : NULL;
    }
    return false;
}

static void read_value(struct reader *reader, const char *option, const char *value)
{
    if (strcmp(option, "-l") == 0 || strcmp(option, "--library") == 0)
        reader->has_source = true;
    else if (strcmp(option, "-Xlinker") == 0 && linker_makes_object(value))
        reader->phase->links = false;
    else if (strcmp(option, "-ccbin") == 0 || strcmp(option, "--compiler-bindir") == 0)
        reader->phase->clang_host = strstr(value, "clang") != NULL;
    else if (strcmp(option, "-x") == 0 && strstr(value, "-header") != NULL)
        reader->phase->links = false;
}

/* Reads a word that is neither an input nor an option with its value in the next word. */
static void read_option(struct reader *reader, const char *word)
{
    static const char *const host_compiler[] = {"-ccbin", "--compiler-bindir", NULL};
    static const char *const fully_static[] = {"-static", "--static", "-static-pie", NULL};
    const char *host = value_after_equals(host_compiler, word);
    const char *const *stop = reader->grammar->stop_prefix;

    while (*stop != NULL && strncmp(*stop, word, strlen(*stop)) != 0)
        stop++;
    if (*stop != NULL)
        reader->phase->links = false;
    else if (host != NULL && reader->grammar == &gs_grammar_nvcc)
        reader->phase->clang_host = strstr(host, "clang") != NULL;
    else if (in_list(fully_static, word))
        reader->phase->is_static = true;
    else if (strncmp(word, "-Wl,", 4) == 0 && linker_makes_object(word + 4))
        reader->phase->links = false;
    else if (strncmp(word, "-l", 2) == 0)
        reader->has_source = true;
    else if (strncmp(word, "-x", 2) == 0 && strstr(word, "-header") != NULL)
        reader->phase->links = false;
}

static void read_words(struct reader *reader, const struct gs_args *args)
{
    const struct gs_grammar *grammar = reader->grammar;

    for (size_t i = 0; i < args->count; i++) {
        const char *word = args->item[i];

        if (in_list(grammar->stop, word)) {
            reader->phase->links = false;
        } else if (in_list(grammar->value, word)) {
            if (i + 1 < args->count)
                read_value(reader, word, args->item[++i]);
        } else if (word[0] == '-' && word[1] != '\0') {
            read_option(reader, word);
        } else {
            const char *const *header = grammar->header;
            const size_t length = strlen(word);

            while (*header != NULL && (length <= strlen(*header) ||
                                       strcmp(word + length - strlen(*header), *header) != 0))
                header++;
            reader->has_source |= *header == NULL;
        }
    }
}

/* Appends the words of one of the two variables that nvcc reads before and after its own words.
 */
static int push_variable(struct gs_args *args, const char *name)
{
    const char *text = getenv(name);

    return text != NULL ? gs_args_split(args, text) : 0;
}

int gs_phase_read(enum gs_compiler compiler, const struct gs_args *args, struct gs_phase *phase,
                  struct gs_err *err)
{
    bool nvcc = compiler == GS_COMPILER_NVCC;
    struct reader reader = {.grammar = nvcc ? &gs_grammar_nvcc : &gs_grammar_gcc,
                            .phase = phase};
    struct gs_args flat = {0};
    int r;

    *phase = (struct gs_phase){.links = true};
    r = nvcc ? push_variable(&flat, "NVCC_PREPEND_FLAGS") : 0;
    r = r ?: flatten_words(reader.grammar, args, &flat, 0, err);
    if (r == 0 && nvcc)
        r = push_variable(&flat, "NVCC_APPEND_FLAGS");
    if (r == 0) {
        read_words(&reader, &flat);
        if (!reader.has_source) /* no input, or headers only */
            phase->links = false;
    }
    gs_args_deinit(&flat);
    return r == -ENOMEM ? gs_err_set(err, r, "out of memory while reading the command line")
                        : r;
}

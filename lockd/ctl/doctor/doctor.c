/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: adds and prints findings, and runs other tools. State: struct doctor.
 */
#include "lockd/ctl/doctor/doctor.h"
#include "common/fd.h"
#include "common/same.h"
#include "lockd/base/text.h"

#include <elf.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static char *write_text(const char *format, va_list ap)
{
    char *text = NULL;

    if (vasprintf(&text, format, ap) < 0)
        return NULL;
    lockd_text_clean(text, strlen(text) + 1); /* the text may have bytes from elsewhere */
    return text;
}

void doctor_add(struct doctor *doctor, const char *check, enum doctor_level level,
                const char *advice, const char *format, ...)
{
    struct doctor_finding *finding = &doctor->findings[doctor->count];
    va_list ap;

    doctor->full = doctor->count == DOCTOR_FINDINGS;
    if (doctor->full)
        return;
    doctor->count++;
    finding->check = check;
    finding->level = level;
    va_start(ap, format);
    finding->text = write_text(format, ap);
    va_end(ap);
    snprintf(finding->advice, sizeof finding->advice, "%s", advice != NULL ? advice : "");
    lockd_text_clean(finding->advice, sizeof finding->advice);
}

void doctor_command(struct doctor *doctor, const char *format, ...)
{
    struct doctor_finding *finding = &doctor->findings[doctor->count - 1];
    va_list ap;

    if (doctor->full)
        return;
    va_start(ap, format);
    free(finding->command);
    finding->command = write_text(format, ap);
    va_end(ap);
}

const char *doctor_quote(const char *path, char *buffer)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+:@";
    size_t at = 0;

    if (path[0] != '\0' && path[0] != '-' && path[strspn(path, plain)] == '\0') {
        snprintf(buffer, DOCTOR_QUOTED, "%s", path);
        return buffer;
    }
    at += (size_t)snprintf(buffer, DOCTOR_QUOTED, "%s'", path[0] == '-' ? "./" : "");
    for (; *path != '\0' && at + 6 < DOCTOR_QUOTED; path++)
        at += (size_t)snprintf(buffer + at, DOCTOR_QUOTED - at, "%.*s", *path == '\'' ? 4 : 1,
                               *path == '\'' ? "'\\''" : path);
    snprintf(buffer + at, DOCTOR_QUOTED - at, "'");
    return buffer;
}

#define PATIENCE_MS 20000

extern char **environ;

const char *doctor_tool_find(const char *name, char *buffer, size_t size)
{
    static const char *const beside[] = {"", "../rewriter/", "../lockd/"};
    char self[PATH_MAX];
    const bool is_known = gs_own_path(self, 1);

    for (size_t i = 0; is_known && i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(buffer, size, "%s/%s%s", self, beside[i], name);
        if (access(buffer, X_OK) == 0)
            return buffer;
    }
    snprintf(buffer, size, "%s", name); /* on PATH */
    return buffer;
}

/* Reads until the end or the time limit. */
static void read_all(int fd, char *text, size_t size)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t got = 0;
    ssize_t more;

    while (got < size - 1 && poll(&ready, 1, PATIENCE_MS) > 0 &&
           (more = read(fd, text + got, size - 1 - got)) > 0)
        got += (size_t)more;
    text[got] = '\0';
}

int doctor_tool_run(char *const argv[], int stream, char *text, size_t size)
{
    const int other = stream == STDOUT_FILENO ? STDERR_FILENO : STDOUT_FILENO;
    posix_spawn_file_actions_t actions;
    int ends[2], started, status = 0;
    pid_t pid;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -errno;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], stream);
    posix_spawn_file_actions_addopen(&actions, other, "/dev/null", O_WRONLY, 0);
    started = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (started == 0) {
        read_all(ends[0], text, size);
        close(ends[0]);
        /* it has ended or is ending, unless it took too long or printed too much */
        for (int i = 0; i < 100 && waitpid(pid, &status, WNOHANG) == 0; i++) {
            if (i == 50)
                kill(pid, SIGKILL);
            poll(NULL, 0, i < 50 ? 2 : 20);
        }
        return WIFEXITED(status) ? WEXITSTATUS(status) : -ECHILD;
    }
    close(ends[0]);
    return -started;
}

/* Checks a program's file: whether it is prepared (patched, or linked with gpushare-cc) or can
 * be. gpushare-patch tells this. No state. */

/* Finds the libraries that a file needs and that the loader does not find. It asks the
 * loader itself, as ldd does, but by a trusted path: this runs no code of the file. No
 * state. */

#if defined __aarch64__
#define LOADER "/lib/ld-linux-aarch64.so.1"
#else
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#endif

#define LIST_MAX 65536
#define TOOLKIT  "/usr/local/cuda/lib64"

static void say_missing(struct doctor *doctor, const char *file, const char *name)
{
    char quoted[DOCTOR_QUOTED], path[512];

    snprintf(path, sizeof path, TOOLKIT "/%s", name);
    doctor_add(doctor, "file.libraries", DOCTOR_FAIL,
               strncmp(name, "libcuda.so", 10) == 0
                   ? "it belongs to NVIDIA's driver; LD_LIBRARY_PATH or ldconfig must find it"
                   : "install it, or name its folder in LD_LIBRARY_PATH",
               "%s needs %s, which is not found: it will not start", file, name);
    if (strncmp(name, "libgpushare.so", 14) == 0)
        doctor_command(doctor, "gpushare-patch %s", doctor_quote(file, quoted));
    else if (strncmp(name, "libcuda.so", 10) == 0)
        doctor_command(doctor, "ldconfig -p | grep libcuda");
    else if (access(path, R_OK) == 0)
        doctor_command(doctor, "export LD_LIBRARY_PATH=" TOOLKIT
                               "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}");
    else
        doctor_command(doctor, "find / -name %s -not -path '/proc/*' 2>/dev/null",
                       doctor_quote(name, quoted));
}

void doctor_libraries(struct doctor *doctor, const char *file)
{
    char env[] = "env", trace[] = "LD_TRACE_LOADED_OBJECTS=1", loader[] = LOADER, path[4096];
    char *argv[] = {env, trace, loader, path, NULL};
    char *text = malloc(LIST_MAX), *save = NULL;

    /* the loader would search for a name without a slash */
    if (text != NULL &&
        snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./", file) <
            (int)sizeof path &&
        doctor_tool_run(argv, STDOUT_FILENO, text, LIST_MAX) >= 0) {
        for (char *line = strtok_r(text, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save)) {
            char *arrow = strstr(line, " => not found");

            if (arrow == NULL)
                continue;
            *arrow = '\0';
            say_missing(doctor, file, line + strspn(line, " \t"));
        }
    }
    free(text);
}

#define ANSWER_MAX 65536

/* --- gpushare-patch --- */

/* The output of `gpushare-patch HOW --json FILE`; NULL: there is none. */
static json_t *ask_patcher(char *how, const char *file)
{
    char program[600], name[4096], json[] = "--json", any[] = "--any", end[] = "--";
    char *argv[] = {program, how, json, any, end, name, NULL};
    char *text = malloc(ANSWER_MAX);
    json_t *answer = NULL;

    doctor_tool_find("gpushare-patch", program, sizeof program);
    if ((size_t)snprintf(name, sizeof name, "%s", file) < sizeof name && text != NULL &&
        doctor_tool_run(argv, STDOUT_FILENO, text, ANSWER_MAX) >= 0)
        answer = json_loads(text, 0, NULL);
    free(text);
    return answer;
}

static void say_patched(struct doctor *doctor, const char *name, const json_t *check)
{
    const char *library = json_string_value(json_object_get(check, "runtime"));
    char quoted[DOCTOR_QUOTED];

    doctor_add(doctor, "file.prepared", DOCTOR_OK, NULL, "%s is patched for %s", name,
               library != NULL ? library : "libgpushare.so.1");
    if (json_is_false(json_object_get(check, "runtime_present"))) {
        doctor_add(doctor, "file.library", DOCTOR_FAIL,
                   "install gpushare there, or patch the file again",
                   "%s, which it needs, does not exist: the program will not start",
                   library != NULL ? library : "the library");
        doctor_command(doctor, "gpushare-patch --restore %s && gpushare-patch %s",
                       doctor_quote(name, quoted), quoted);
    }
}

enum doctor_patched doctor_patched(const char *path)
{
    char how[] = "--check";
    json_t *check = access(path, F_OK) == 0 ? ask_patcher(how, path) : NULL;
    const enum doctor_patched patched =
        check == NULL                                              ? DOCTOR_UNKNOWN
        : !json_is_true(json_object_get(check, "patched"))         ? DOCTOR_UNPATCHED
        : json_is_false(json_object_get(check, "runtime_present")) ? DOCTOR_ORPHANED
                                                                   : DOCTOR_PATCHED;

    json_decref(check);
    return patched;
}

/* Names the libraries that the file loads, that use CUDA, and whose calls nothing routes. */
static void say_unrouted(struct doctor *doctor, const json_t *check, const char *name)
{
    const bool patched = json_is_true(json_object_get(check, "patched"));
    char quoted[DOCTOR_QUOTED];
    const json_t *library;
    size_t i;

    json_array_foreach(json_object_get(check, "unrouted"), i, library)
    {
        const char *file = json_string_value(json_object_get(library, "file"));
        const char *why = json_string_value(json_object_get(library, "why"));

        doctor_add(doctor, "file.unrouted", DOCTOR_WARN,
                   patched ? "prepare the program that loads them"
                           : "it is routed once the program is prepared",
                   "%.300s uses CUDA (%.160s) and nothing routes its calls",
                   file != NULL ? file : "a library", why != NULL ? why : "");
        doctor_command(doctor, "gpushare-patch --print %s", doctor_quote(name, quoted));
    }
}

/* The interpreter of a Python environment may be a link to the system's, which should not be
 * changed for one environment. */
static void say_link(struct doctor *doctor, const char *path, const char *environment)
{
    GS_FREE char *real = realpath(path, NULL);
    char quoted[DOCTOR_QUOTED];

    doctor_add(doctor, "file.prepared", DOCTOR_FAIL, "prepare the environment",
               "%.200s is not prepared; the Python environment %.200s only links to it",
               real != NULL ? real : path, environment);
    doctor_command(doctor, "gpushare-patch --venv %s", doctor_quote(environment, quoted));
}

static void say_unpatched(struct doctor *doctor, const char *path, const char *name)
{
    char how[] = "--print";
    json_t *print = ask_patcher(how, path);
    const char *problem = json_string_value(json_object_get(print, "problem"));
    const char *environment = json_string_value(json_object_get(print, "environment"));
    const bool cuda = json_is_true(json_object_get(print, "cuda")) &&
                      json_integer_value(json_object_get(print, "exit")) != 4;
    const bool impossible = json_integer_value(json_object_get(print, "exit")) == 3;
    char quoted[DOCTOR_QUOTED];

    if (environment != NULL) {
        say_link(doctor, path, environment);
        json_decref(print);
        return;
    }
    if (impossible && problem != NULL)
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL,
                   "gpushare-patch tells what to do about it",
                   "it is not prepared and cannot be patched: %.300s", problem);
    else if (cuda)
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL, "patch it",
                   "%s is a CUDA program and is not prepared", name);
    else
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL,
                   "if this is the program that loads CUDA, patch it; otherwise patch the one "
                   "that does",
                   "%s is not prepared; it does not use CUDA itself (it may load CUDA later)",
                   name);
    doctor_command(doctor, "gpushare-patch%s %s",
                   impossible && problem != NULL ? " --print"
                   : cuda                        ? ""
                                                 : " --any",
                   doctor_quote(name, quoted));
    json_decref(print);
}

/* --- the file itself --- */

struct look {
    bool elf, names_library, script;
    char line[256]; /* of a script: the text behind #! */
};

static int look_inside(const char *path, struct look *look)
{
    GS_CLOSE_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    void *bytes;

    *look = (struct look){0};
    if (fd < 0 || fstat(fd, &st) != 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EINVAL;
    if (st.st_size == 0)
        return 0;
    bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return -errno;
    look->elf = st.st_size > SELFMAG && memcmp(bytes, ELFMAG, SELFMAG) == 0;
    look->script = st.st_size > 2 && memcmp(bytes, "#!", 2) == 0;
    if (look->script)
        snprintf(look->line, sizeof look->line, "%.*s",
                 st.st_size > 256 ? 254 : (int)st.st_size - 2, (const char *)bytes + 2);
    look->names_library = memmem(bytes, (size_t)st.st_size, "libgpushare.so.", 15) != NULL;
    munmap(bytes, (size_t)st.st_size);
    return 0;
}

static void look_at_privileges(struct doctor *doctor, const char *path, const char *name)
{
    char quoted[DOCTOR_QUOTED];
    struct stat st;

    if (stat(path, &st) != 0 || ((st.st_mode & (S_ISUID | S_ISGID)) == 0 &&
                                 getxattr(path, "security.capability", NULL, 0) <= 0))
        return;
    doctor_add(doctor, "file.privileged", DOCTOR_WARN,
               "it always uses the standard socket; gpushare-patch needs --force for it",
               "%s has setuid, setgid or file capabilities: GPUSHARE_ variables are ignored",
               name);
    doctor_command(doctor, "gpushare-patch --force %s", doctor_quote(name, quoted));
}

/* The program that a script names in its first line: "/bin/sh", or "python3" after env
 * (execve(2), env(1)). */
static void name_interpreter(char *line, char *name, size_t size)
{
    char *rest = line, *word;

    line[strcspn(line, "\n")] = '\0';
    word = strtok_r(rest, " \t\r", &rest);
    snprintf(name, size, "%s", word != NULL ? word : "");
    if (word == NULL ||
        strcmp(strrchr(word, '/') != NULL ? strrchr(word, '/') : "", "/env") != 0)
        return;
    while ((word = strtok_r(rest, " \t\r", &rest)) != NULL) {
        if (word[0] != '-' && strchr(word, '=') == NULL) {
            snprintf(name, size, "%s", word);
            return;
        }
    }
}

static void say_no_program(struct doctor *doctor, const char *name, struct look *look)
{
    char interpreter[sizeof look->line] = "", quoted[DOCTOR_QUOTED];

    if (look->script)
        name_interpreter(look->line, interpreter, sizeof interpreter);
    doctor_add(doctor, "file.kind", DOCTOR_FAIL, "prepare the interpreter that runs it",
               "%s is %s: the program that runs it must be prepared", name,
               look->script ? "a script" : "no program");
    if (interpreter[0] == '/')
        doctor_command(doctor, "gpusharectl doctor %s", doctor_quote(interpreter, quoted));
    else if (interpreter[0] != '\0')
        doctor_command(doctor, "gpusharectl doctor \"$(command -v %s)\"",
                       doctor_quote(interpreter, quoted));
    else
        doctor_command(doctor, "file %s", doctor_quote(name, quoted));
}

void doctor_file(struct doctor *doctor, const char *path, const char *name)
{
    char how[] = "--check";
    char quoted[DOCTOR_QUOTED];
    struct look look;
    json_t *check;
    int code = look_inside(path, &look);

    if (code != 0) {
        doctor_add(doctor, "file.read", DOCTOR_FAIL, NULL, "%s: %s", name,
                   code == -EINVAL ? "not a file" : strerror(-code));
        doctor_command(doctor, "ls -ld %s", doctor_quote(name, quoted));
        return;
    }
    if (!look.elf) {
        say_no_program(doctor, name, &look);
        return;
    }
    look_at_privileges(doctor, path, name);
    check = ask_patcher(how, path);
    if (json_is_true(json_object_get(check, "patched")))
        say_patched(doctor, name, check);
    else if (look.names_library)
        doctor_add(doctor, "file.prepared", DOCTOR_OK, NULL,
                   "%s names libgpushare.so (linked with gpushare-cc, or patched)", name);
    else if (check != NULL) {
        say_unpatched(doctor, path, name);
    } else {
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL,
                   "install gpushare-patch, then patch it",
                   "%s does not name libgpushare.so, so it is not prepared (gpushare-patch, "
                   "which could tell more, was not found)",
                   name);
        doctor_command(doctor, "gpushare-patch %s", doctor_quote(name, quoted));
    }
    say_unrouted(doctor, check, name);
    json_decref(check);
}

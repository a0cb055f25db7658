/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_file.c: a program's file: is it prepared (patched, or linked with gpushare-cc), and if
 * not, can it be? What the file is, gpushare-patch says where it is installed; without it a
 * look at the ELF header must do. No state.
 */
#include "common/fd.h"
#include "lockd/ctl/doctor/doctor.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ANSWER_MAX  65536
#define PATIENCE_MS 20000

extern char **environ;

/* --- gpushare-patch --- */

static const char *find_patcher(char *buffer, size_t size)
{
    static const char *const beside[] = {"", "../rewriter/"};
    char self[512];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char *slash;

    self[length > 0 ? length : 0] = '\0';
    slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < sizeof beside / sizeof beside[0]; i++) {
        snprintf(buffer, size, "%.*s/%sgpushare-patch", (int)(slash - self), self, beside[i]);
        if (access(buffer, X_OK) == 0)
            return buffer;
    }
    snprintf(buffer, size, "gpushare-patch"); /* on PATH */
    return buffer;
}

/* Reads until the end or until it takes too long; the number of bytes, 0 for nothing. */
static size_t read_all(int fd, char *text, size_t size)
{
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t got = 0;
    ssize_t more;

    while (got < size - 1 && poll(&ready, 1, PATIENCE_MS) > 0) {
        more = read(fd, text + got, size - 1 - got);
        if (more <= 0)
            break;
        got += (size_t)more;
    }
    text[got] = '\0';
    return got;
}

/* What `gpushare-patch HOW --json FILE` prints; NULL when it cannot be had. */
static json_t *ask_patcher(char *how, const char *file)
{
    char program[600], name[4096], json[] = "--json", any[] = "--any", end[] = "--";
    char *argv[] = {program, how, json, any, end, name, NULL};
    posix_spawn_file_actions_t actions;
    int ends[2], started;
    json_t *answer = NULL;
    pid_t pid;

    find_patcher(program, sizeof program);
    if ((size_t)snprintf(name, sizeof name, "%s", file) >= sizeof name ||
        pipe2(ends, O_CLOEXEC) != 0)
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    started = posix_spawnp(&pid, program, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (started == 0) {
        char *text = malloc(ANSWER_MAX);

        if (text != NULL && read_all(ends[0], text, ANSWER_MAX) > 0)
            answer = json_loads(text, 0, NULL);
        free(text);
        kill(pid, SIGTERM); /* ended already, unless it took too long */
        waitpid(pid, NULL, 0);
    }
    close(ends[0]);
    return answer;
}

static void say_patched(struct doctor *doctor, const char *name, const json_t *check)
{
    const char *library = json_string_value(json_object_get(check, "runtime"));

    doctor_add(doctor, "file.prepared", DOCTOR_OK, NULL, "%s is patched for %s", name,
               library != NULL ? library : "libgpushare.so.1");
    if (json_is_false(json_object_get(check, "runtime_present")))
        doctor_add(doctor, "file.library", DOCTOR_FAIL,
                   "install gpushare there, or patch the file again (gpushare-patch --runtime)",
                   "%s, which it needs, does not exist: the program will not start",
                   library != NULL ? library : "the library");
}

/* The interpreter of a Python environment that is a link to the system's, which is nothing to
 * change for the sake of one environment. */
static void say_link(struct doctor *doctor, const char *path, const char *environment)
{
    char advice[256], *real = realpath(path, NULL);

    snprintf(advice, sizeof advice, "gpushare-patch --venv %s", environment);
    doctor_add(doctor, "file.prepared", DOCTOR_FAIL, advice,
               "%.200s is not prepared; the Python environment %.200s only links to it",
               real != NULL ? real : path, environment);
    free(real);
}

static void say_unpatched(struct doctor *doctor, const char *path, const char *name)
{
    char how[] = "--print";
    json_t *print = ask_patcher(how, path);
    const char *problem = json_string_value(json_object_get(print, "problem"));
    const char *environment = json_string_value(json_object_get(print, "environment"));
    const bool cuda = json_is_true(json_object_get(print, "cuda"));
    const bool impossible = json_integer_value(json_object_get(print, "exit")) == 3;

    if (environment != NULL)
        say_link(doctor, path, environment);
    else if (impossible && problem != NULL)
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL, "run gpushare-patch on it for details",
                   "it is not prepared and cannot be patched: %.300s", problem);
    else if (cuda)
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL, "gpushare-patch FILE",
                   "%s is a CUDA program and is not prepared", name);
    else
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL,
                   "if this is the program that loads CUDA: gpushare-patch --any FILE; "
                   "otherwise patch the one that does",
                   "%s is not prepared; it does not use CUDA itself (it may load CUDA later)",
                   name);
    json_decref(print);
}

/* --- the file itself --- */

struct look {
    bool elf, interpreter, dynamic, other_machine, names_library, script;
};

static void look_at_segments(const unsigned char *bytes, size_t size, struct look *look)
{
    Elf64_Ehdr header;
    Elf64_Phdr segment;

    if (size < sizeof header)
        return;
    memcpy(&header, bytes, sizeof header);
    if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
        return;
    look->elf = true;
    look->other_machine = header.e_ident[EI_CLASS] != ELFCLASS64;
    if (look->other_machine || header.e_phentsize != sizeof segment)
        return;
    for (unsigned i = 0; i < header.e_phnum; i++) {
        if (header.e_phoff > size || size - header.e_phoff < (i + 1ull) * sizeof segment)
            return;
        memcpy(&segment, bytes + header.e_phoff + i * sizeof segment, sizeof segment);
        look->interpreter |= segment.p_type == PT_INTERP;
        look->dynamic |= segment.p_type == PT_DYNAMIC;
    }
}

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
    look_at_segments(bytes, (size_t)st.st_size, look);
    look->script = st.st_size > 2 && memcmp(bytes, "#!", 2) == 0;
    look->names_library = memmem(bytes, (size_t)st.st_size, "libgpushare.so.", 15) != NULL;
    munmap(bytes, (size_t)st.st_size);
    return 0;
}

static void look_at_privileges(struct doctor *doctor, const char *path, const char *name)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return;
    if ((st.st_mode & (S_ISUID | S_ISGID)) != 0 ||
        getxattr(path, "security.capability", NULL, 0) > 0)
        doctor_add(
            doctor, "file.privileged", DOCTOR_WARN,
            "it always uses the standard socket; gpushare-patch needs --force for it",
            "%s has setuid, setgid or file capabilities: GPUSHARE_ variables are ignored",
            name);
}

void doctor_file(struct doctor *doctor, const char *path, const char *name)
{
    char how[] = "--check";
    struct look look;
    json_t *check;
    int code = look_inside(path, &look);

    if (code != 0) {
        doctor_add(doctor, "file.read", DOCTOR_FAIL, NULL, "%s: %s", name,
                   code == -EINVAL ? "not a file" : strerror(-code));
        return;
    }
    if (!look.elf) {
        doctor_add(doctor, "file.kind", DOCTOR_FAIL,
                   "prepare the interpreter that runs it (for example python3)",
                   "%s is %s: the program that runs it must be prepared", name,
                   look.script ? "a script" : "no program");
        return;
    }
    look_at_privileges(doctor, path, name);
    check = ask_patcher(how, path);
    if (json_is_true(json_object_get(check, "patched")))
        say_patched(doctor, name, check);
    else if (look.names_library)
        doctor_add(doctor, "file.prepared", DOCTOR_OK, NULL,
                   "%s names libgpushare.so (linked with gpushare-cc, or patched)", name);
    else if (look.other_machine || !look.dynamic)
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL, "link it with gpushare-cc instead",
                   "%s is %s: its calls cannot be routed", name,
                   look.other_machine ? "a 32-bit program" : "fully static");
    else if (check != NULL)
        say_unpatched(doctor, path, name);
    else
        doctor_add(doctor, "file.prepared", DOCTOR_FAIL, "gpushare-patch FILE",
                   "%s does not name libgpushare.so, so it is not prepared (gpushare-patch, "
                   "which could tell more, was not found)",
                   name);
    json_decref(check);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: the loader's own check of a new file (the bytes are checked in readback.c, the
 * meaning in meaning.c and, by libelf, in second.c).
 *
 * No state; elf_verify_loader() starts and awaits a child process.
 */
#include "rewriter/verify/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* The path of glibc's loader on a system of that machine (its ABI fixes it). */
static const char *loader_path(unsigned machine)
{
    return machine == EM_X86_64 ? "/lib64/ld-linux-x86-64.so.2" : "/lib/ld-linux-aarch64.so.1";
}

static unsigned host_machine(void)
{
#ifdef __x86_64__
    return EM_X86_64;
#else
    return EM_AARCH64;
#endif
}

static int run_loader(const char *loader, int fd, int *status)
{
    char *const empty[] = {NULL};
    char *const argv[] = {(char *)(uintptr_t)loader, (char *)(uintptr_t) "--verify",
                          (char *)(uintptr_t) "/proc/self/fd/3", NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int ret = posix_spawn_file_actions_init(&actions);

    if (ret != 0)
        return -ret;
    ret = posix_spawn_file_actions_addclose(&actions, 1); /* there may be no /dev/null */
    ret = ret ?: posix_spawn_file_actions_addclose(&actions, 2);
    ret = ret ?: posix_spawn_file_actions_adddup2(&actions, fd, 3);
    ret = ret ?: posix_spawn(&pid, loader, &actions, NULL, argv, empty);
    posix_spawn_file_actions_destroy(&actions);
    if (ret != 0)
        return -ret;
    while (waitpid(pid, status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

/* Results of rtld.c: 0 a program of this loader, 2 an object without interpreter, 1 an object
 * that it cannot load. */
static int ask_loader(const char *loader, int fd, bool *accepted)
{
    int status = 0, ret = run_loader(loader, fd, &status);

    *accepted = WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 2);
    return ret;
}

int elf_verify_loader(const struct elf_image *image, int old, int fd, struct gs_err *err)
{
    unsigned machine = image->header.e_machine;
    const char *loader = loader_path(machine), *name = image->source.name;
    bool accepted = false, accepted_old = false;
    struct statvfs mounted;
    int ret;

    if (fstatvfs(fd, &mounted) == 0 && (mounted.f_flag & ST_NOEXEC))
        return 0; /* it accepts nothing on such a mount */
    /* only the system's own loader is run, never a loader that the file names */
    if (machine != host_machine() || access(loader, X_OK) != 0)
        return 0;
    if (image->interpreter != NULL && strcmp(image->interpreter, loader) != 0)
        return 0;
    if (access("/proc/self/fd", X_OK) != 0)
        return gs_err_set(
            err, -EIO,
            "%s: the loader cannot check the new file, because /proc is not mounted; "
            "mount it",
            name);
    ret = ask_loader(loader, fd, &accepted);
    if (ret == 0 && !accepted)
        ret = ask_loader(loader, old, &accepted_old);
    if (ret != 0)
        return gs_err_errno(err, ret, "%s: cannot run %s --verify", name, loader);
    if (accepted)
        return 0;
    if (!accepted_old)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: %s does not accept it", name, loader);
    return gs_err_set(err, -EIO,
                      "%s: %s --verify does not accept the new file; the old file is left "
                      "unchanged. Please report this",
                      name, loader);
}

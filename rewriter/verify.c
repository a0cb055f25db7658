/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.c: byte-wise checks of a new file, and the loader's own.
 *
 * The rewriter does not trust its plan's execution: what is on disk is read back. The pass over
 * the original computes its SHA-256 as well, so that no other pass is needed. No state;
 * elf_verify_loader() starts and awaits a child process.
 */
#include "rewriter/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHUNK ((size_t)256 * 1024) /* bytes; both buffers stay in the cache */

static int differs(const char *name, uint64_t offset, struct gs_err *err)
{
    return gs_err_set(
        err, -EIO,
        "%s: the new file is not what was planned (near offset 0x%llx); the old one is "
        "left alone. Please report this",
        name, (unsigned long long)offset);
}

static int check_size(const char *name, int fd, uint64_t size, struct gs_err *err)
{
    struct stat st;

    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != size)
        return differs(name, size, err);
    return 0;
}

static int compare_original(const struct elf_plan *plan, const struct elf_source *new,
                            uint8_t *buffers, struct elf_sha256 *sha, struct gs_err *err)
{
    const struct elf_source *old = &plan->image->source;
    uint8_t *expected = buffers, *found = buffers + CHUNK;

    for (uint64_t at = 0; at < old->size;) {
        size_t n = old->size - at < CHUNK ? (size_t)(old->size - at) : CHUNK;
        int ret = elf_source_read(old, at, expected, n, err);

        ret = ret ?: elf_source_read(new, at, found, n, err);
        if (ret != 0)
            return ret;
        elf_sha256_update(sha, expected, n);
        elf_changes_apply(plan->changes, plan->change_count, at, expected, n);
        if (memcmp(expected, found, n) != 0)
            return differs(old->name, at, err);
        at += n;
    }
    return 0;
}

static int compare_tail(const struct elf_plan *plan, const struct elf_source *new,
                        uint8_t *buffer, struct gs_err *err)
{
    uint64_t size = plan->end - plan->segment.offset;

    for (uint64_t at = 0; at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;
        int ret = elf_source_read(new, plan->segment.offset + at, buffer, n, err);

        if (ret != 0)
            return ret;
        if (memcmp(plan->tail + at, buffer, n) != 0)
            return differs(new->name, plan->segment.offset + at, err);
        at += n;
    }
    return 0;
}

int elf_verify_bytes(const struct elf_plan *plan, int fd, uint8_t digest[ELF_SHA256_SIZE],
                     struct gs_err *err)
{
    const char *name = plan->image->source.name;
    struct elf_source new = {.name = name, .fd = fd, .size = plan->end};
    struct elf_sha256 sha;
    uint8_t *buffers;
    int ret = check_size(name, fd, plan->end, err);

    if (ret != 0)
        return ret;
    buffers = malloc(2 * CHUNK);
    if (buffers == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", name);
    elf_sha256_init(&sha);
    ret = compare_original(plan, &new, buffers, &sha, err);
    ret = ret ?: compare_tail(plan, &new, buffers, err);
    elf_sha256_final(&sha, digest);
    free(buffers);
    return ret;
}

int elf_verify_digest(const char *name, int fd, uint64_t size,
                      const uint8_t digest[ELF_SHA256_SIZE], struct gs_err *err)
{
    struct elf_source source = {.name = name, .fd = fd, .size = size};
    uint8_t found[ELF_SHA256_SIZE], *buffer;
    struct elf_sha256 sha;
    int ret = check_size(name, fd, size, err);

    if (ret != 0)
        return ret;
    buffer = malloc(CHUNK);
    if (buffer == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", name);
    elf_sha256_init(&sha);
    for (uint64_t at = 0; ret == 0 && at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

        ret = elf_source_read(&source, at, buffer, n, err);
        if (ret == 0)
            elf_sha256_update(&sha, buffer, n);
        at += n;
    }
    elf_sha256_final(&sha, found);
    free(buffer);
    if (ret == 0 && memcmp(found, digest, sizeof found) != 0)
        return gs_err_set(
            err, -EIO,
            "%s: what the undo note gives back is not the original (the file was changed "
            "after it was patched); take it from its package or build again",
            name);
    return ret;
}

/* Where glibc's loader is on a system of that machine (its ABI fixes the path). */
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
    ret = posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    ret = ret ?: posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
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

/* rtld.c: 0 a program of this loader, 2 an object without interpreter, 1 nothing it can load.
 */
static int accepts(const char *loader, int fd, bool *accepted)
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
    int ret;

    /* only the system's own loader is run, never one that the file names */
    if (machine != host_machine() || access(loader, X_OK) != 0)
        return 0;
    if (image->interpreter != NULL && strcmp(image->interpreter, loader) != 0)
        return 0;
    ret = accepts(loader, fd, &accepted);
    if (ret == 0 && !accepted)
        ret = accepts(loader, old, &accepted_old);
    if (ret != 0)
        return gs_err_errno(err, ret, "%s: cannot run %s --verify", name, loader);
    if (accepted)
        return 0;
    if (!accepted_old)
        return gs_err_set(err, -ENOEXEC, "%s: damaged: %s does not accept it", name, loader);
    return gs_err_set(
        err, -EIO,
        "%s: %s --verify does not accept the new file; the old one is left alone. Please "
        "report this",
        name, loader);
}

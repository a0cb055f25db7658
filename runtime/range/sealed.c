/* SPDX-License-Identifier: Apache-2.0
 *
 * sealed.c: makes, checks and maps sealed memory. No state.
 *
 * Nothing that another process does to such a file reaches its readers: the seals refuse writes,
 * holes and other sizes, and only files of tmpfs are taken, whose pages need no server.
 */
#include "runtime/range/sealed.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int gs_sealed_new(uint64_t bytes)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const int fd =
        (int)syscall(SYS_memfd_create, "gpushare-copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int error;

    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)bytes) == 0)
        return fd;
    error = errno;
    close(fd);
    return -error;
}

bool gs_sealed_write(int fd, const char *from, uint64_t bytes, uint64_t offset)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    while (bytes != 0) {
        const ssize_t done = pwrite(fd, from, bytes, (off_t)offset);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        from += done;
        offset += (uint64_t)done;
        bytes -= (uint64_t)done;
    }
    return true;
}

bool gs_sealed_close(int fd)
{
    return fcntl(fd, F_ADD_SEALS, SEALS | F_SEAL_SEAL) == 0;
}

static bool is_sealed(int fd, uint64_t bytes)
{
    const int seals = fcntl(fd, F_GET_SEALS);
    struct statfs system;
    struct stat file;

    return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &file) == 0 &&
           file.st_size == (off_t)bytes && fstatfs(fd, &system) == 0 &&
           system.f_type == TMPFS_MAGIC;
}

/* One bit for each block that has no hole; that stays so, since the file is sealed. */
static uint64_t find_filled(int fd, uint64_t bytes, uint64_t block)
{
    uint64_t filled = 0;
    off_t hole = -1;

    for (uint64_t at = 0, bit = 1; at < bytes; at += block, bit <<= 1) {
        const uint64_t end = bytes - at < block ? bytes : at + block;

        if (hole < (off_t)at) /* the kernel looks at each page before the hole */
            hole = lseek(fd, (off_t)at, SEEK_HOLE);
        if (hole >= (off_t)end)
            filled |= bit;
    }
    return filled;
}

char *gs_sealed_map(int fd, uint64_t bytes, uint64_t block, uint64_t *filled)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    void *memory = MAP_FAILED;
    char path[32];
    int readable;

    /* Before Linux 6.7 memory that is sealed against writes can be mapped only by a descriptor that
     * is for reading. The program may have closed this one and opened another file with its
     * number. */
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    readable = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (readable < 0)
        return NULL;
    if (is_sealed(readable, bytes)) {
        *filled = find_filled(readable, bytes, block);
        memory = mmap(NULL, bytes, PROT_READ, MAP_SHARED, readable, 0);
    }
    close(readable);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, bytes, MADV_DONTFORK); /* children would unmap what is theirs there */
    madvise(memory, bytes, MADV_DONTDUMP);
    return memory;
}

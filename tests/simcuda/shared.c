/* SPDX-License-Identifier: Apache-2.0
 *
 * shared.c: owns the books and the files of memory that processes can share (ledger.h).
 *
 * On a card such memory takes room as long as anybody refers to it: by a handle, a mapping or a
 * descriptor, in any process or on its way through a socket. Here it is a file in the folder of
 * the cards. As long as its maker lives and has it, its entry says so. All other references are
 * open file descriptions that hold a shared flock: the kernel drops such a lock with the last
 * descriptor (dup, SCM_RIGHTS, fork) and the last mapping. Whoever can lock the file
 * exclusively knows that nobody has the memory any more. What the driver itself opens has no
 * lock, so that a child of fork() does not refer to the memory; who imports maps the
 * description that came.
 *
 * Invariants: an entry is in use when its bytes are not 0, and is whole from then on but for
 * the file, which follows: a maker that dies in between leaves an entry whose file is not
 * there, or not locked, and that is removed as any other. Entries are read and written under
 * card->lock. Threads: any; the folder is set under the caller's lock.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include "common/fd.h"
#include "tests/simcuda/ledger.h"

#define NAME_SIZE 64

static int folder_fd = -1;

int sim_shared_open(const char *folder)
{
    const int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return -errno;
    gs_fd_closep(&folder_fd);
    folder_fd = fd;
    return 0;
}

static const char *file_name(const struct sim_card *card, uint64_t number, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "memory-%u-%llu", card->index, (unsigned long long)number);
    return name;
}

/* Nobody has the memory any more. Its file is then removed, unless the name belongs to the
 * memory of a card that came after this one (simcuda-card --reset). */
static bool file_removed(const struct sim_card *card, const struct sim_shared *entry)
{
    char name[NAME_SIZE];
    struct stat status;
    GS_CLOSE_FD int fd = openat(folder_fd, file_name(card, entry->number, name),
                                O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return errno == ENOENT;
    if (fstat(fd, &status))
        return false;
    if (entry->inode && (status.st_ino != entry->inode || status.st_dev != entry->device))
        return true;
    if (flock(fd, LOCK_EX | LOCK_NB))
        return false;
    unlinkat(folder_fd, name, 0);
    return true;
}

static void entry_clear(struct sim_card *card, struct sim_shared *entry)
{
    *entry = (struct sim_shared){0};
    while (card->shared_limit && !card->shared[card->shared_limit - 1].bytes)
        card->shared_limit--;
}

static struct sim_shared *entry_of(struct sim_card *card, uint64_t number)
{
    for (unsigned i = 0; i < card->shared_limit; i++) {
        if (card->shared[i].bytes && card->shared[i].number == number)
            return &card->shared[i];
    }
    return NULL;
}

static struct sim_shared *entry_free(struct sim_card *card)
{
    for (unsigned i = 0; i < card->shared_limit; i++) {
        if (!card->shared[i].bytes)
            return &card->shared[i];
    }
    return card->shared_limit < SIM_SHARED_MAX ? &card->shared[card->shared_limit++] : NULL;
}

/* The entry's file: new, and as large as the memory. 0 or -errno. */
static int file_make(struct sim_card *card, struct sim_shared *entry, int *out)
{
    char name[NAME_SIZE];
    struct stat status;
    int fd;

    while ((fd = openat(folder_fd, file_name(card, entry->number, name),
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)) < 0 &&
           errno == EEXIST) /* of a card that was removed while this memory was used */
        entry->number = ++card->shared_made;
    if (fd < 0)
        return -errno;
    if (ftruncate(fd, (off_t)entry->bytes) || fstat(fd, &status)) {
        const int rc = -errno;
        unlinkat(folder_fd, name, 0);
        close(fd);
        return rc;
    }
    entry->device = status.st_dev;
    entry->inode = status.st_ino;
    *out = fd;
    return 0;
}

int sim_shared_new(struct sim_card *card, unsigned client, uint64_t bytes, uint64_t *number,
                   int *fd)
{
    sim_card_lock(card);
    int rc = sim_card_has_room(card, bytes) ? 0 : -ENOMEM;
    struct sim_shared *entry = rc ? NULL : entry_free(card);
    if (!rc && !entry) {
        sim_card_remove_dead(card);
        entry = entry_free(card);
        rc = entry ? 0 : -ENOSPC;
    }
    if (entry) {
        *entry = (struct sim_shared){.number = ++card->shared_made, .maker = 1 + client};
        /* last: the entry is whole */
        __atomic_store_n(&entry->bytes, bytes, __ATOMIC_RELEASE);
        rc = file_make(card, entry, fd);
        *number = entry->number;
        if (rc)
            entry_clear(card, entry);
    }
    sim_card_unlock(card);
    return rc;
}

int sim_shared_reopen(int fd)
{
    char path[NAME_SIZE];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int other = open(path, O_RDWR | O_CLOEXEC);
    return other < 0 ? -errno : other;
}

int sim_shared_export(int fd)
{
    const int other = sim_shared_reopen(fd);

    if (other < 0 || flock(other, LOCK_SH | LOCK_NB) == 0)
        return other;
    const int rc = -errno;
    close(other);
    return rc;
}

int sim_shared_find(struct sim_card *card, int fd, uint64_t *number, uint64_t *bytes)
{
    struct stat status;
    int rc = -ENOENT;

    if (fstat(fd, &status))
        return rc;
    sim_card_lock(card);
    for (unsigned i = 0; i < card->shared_limit && rc; i++) {
        const struct sim_shared *entry = &card->shared[i];
        if (!entry->bytes || entry->inode != status.st_ino || entry->device != status.st_dev)
            continue;
        if ((uint64_t)status.st_size != entry->bytes || flock(fd, LOCK_SH | LOCK_NB))
            break;
        *number = entry->number;
        *bytes = entry->bytes;
        rc = 0;
    }
    sim_card_unlock(card);
    return rc;
}

void sim_shared_put(struct sim_card *card, uint64_t number, bool maker)
{
    sim_card_lock(card);
    struct sim_shared *entry = entry_of(card, number);
    if (entry && maker)
        entry->maker = 0;
    if (entry && !entry->maker && file_removed(card, entry))
        entry_clear(card, entry);
    sim_card_unlock(card);
}

void sim_shared_leave(struct sim_card *card, unsigned client)
{
    for (unsigned i = 0; i < card->shared_limit; i++) {
        if (card->shared[i].maker == 1 + client)
            card->shared[i].maker = 0;
    }
}

void sim_shared_sweep(struct sim_card *card)
{
    for (unsigned i = card->shared_limit; i-- > 0;) { /* down: what is removed ends the table */
        struct sim_shared *entry = &card->shared[i];
        if (entry->bytes && !entry->maker && file_removed(card, entry))
            entry_clear(card, entry);
    }
}

uint64_t sim_shared_used(const struct sim_card *card, unsigned *pieces)
{
    uint64_t used = 0;
    unsigned count = 0;

    for (unsigned i = 0; i < card->shared_limit; i++) {
        used += card->shared[i].bytes;
        count += card->shared[i].bytes != 0;
    }
    if (pieces)
        *pieces = count;
    return used;
}

int sim_shared_remove_all(unsigned index)
{
    char prefix[NAME_SIZE];
    int rc = 0;
    DIR *files = fdopendir(openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    if (!files)
        return -errno;
    snprintf(prefix, sizeof prefix, "memory-%u-", index);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone
    for (const struct dirent *file; (file = readdir(files)) != NULL;) {
        if (strncmp(file->d_name, prefix, strlen(prefix)) == 0 &&
            unlinkat(folder_fd, file->d_name, 0) && errno != ENOENT)
            rc = -errno;
    }
    closedir(files);
    return rc;
}

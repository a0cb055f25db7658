/* SPDX-License-Identifier: Apache-2.0
 *
 * output.c: writes a new file beside the old file and renames it over.
 *
 * Owns the new file until it is committed. Invariant: at every moment the target is the
 * complete old file or the complete new file. One thread per output.
 */
#include "rewriter/output/output.h"
#include "common/same.h"
#include "rewriter/output/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/xattr.h>

/* A run holds a lock (flock) on its new file, which the kernel releases when the run ends.
 * If a file system cannot lock, leftovers stay. */

#define PREFIX             ".gpushare-patch."
#define ELF_LEFTOVER_INNER "new" /* the file in such a folder */

static void print_name(char name[NAME_MAX + 1], uint64_t number)
{
    snprintf(name, NAME_MAX + 1, PREFIX "%016llx", (unsigned long long)number);
}

void elf_leftover_name(char name[NAME_MAX + 1], const char *base)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */

    for (; *base != '\0'; base++)
        hash = (hash ^ (unsigned char)*base) * 0x100000001b3u;
    print_name(name, hash);
}

bool elf_leftover_is_one(const char *name)
{
    return strncmp(name, PREFIX, strlen(PREFIX)) == 0;
}

static void sweep_file(int folder, const char *name, int fd, const struct stat *st)
{
    struct stat now;

    if (flock(fd, LOCK_SH | LOCK_NB) == 0 &&
        fstatat(folder, name, &now, AT_SYMLINK_NOFOLLOW) == 0 && gs_same_inode(&now, st))
        unlinkat(folder, name, 0);
}

void elf_leftover_sweep(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;

    if (fd < 0 && errno == ELOOP)
        unlinkat(folder, name, 0); /* a link, which no run uses for long */
    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        sweep_file(folder, name, fd, &st);
    } else if (S_ISDIR(st.st_mode)) {
        /* A folder with a file in it. A run that has made its folder but not yet the file would fail
         * then, but it would work on the same target as this run. */
        int file =
            openat(fd, ELF_LEFTOVER_INNER, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        if (file >= 0 && fstat(file, &st) == 0 && S_ISREG(st.st_mode))
            sweep_file(fd, ELF_LEFTOVER_INNER, file, &st);
        if (file >= 0)
            close(file);
        unlinkat(folder, name, AT_REMOVEDIR); /* if it is empty now */
    }
    close(fd);
}

/* A hint for an error of the file system; empty if the error says enough by itself. */
static const char *way_out(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return " (free enough space for a second copy of the file)";
    case EFBIG:
        return " (raise the file size limit, ulimit -f)";
    case EROFS:
        return " (patch a copy elsewhere, or mount it writable)";
    case EACCES:
        return " (run this as a user who may write there)";
    case EPERM:
        return " (immutable, append-only, or another user's in a sticky folder? lsattr, ls "
               "-ld)";
    case EBUSY:
        return " (it is a mount point; patch the file that is mounted there)";
    default:
        return "";
    }
}

static int fail_with_errno(const struct elf_output *output, const char *what,
                           struct gs_err *err)
{
    int error = errno;

    return gs_err_errno(err, -error, "%s: %s%s", output->target, what, way_out(error));
}

/* Takes over the entry's folder, as a descriptor that can be synced. A device or folder is never
 * replaced. If the target is a link, the link itself is replaced by the file. */
static int open_folder(struct elf_output *output, const struct elf_entry *entry,
                       const char *target, struct gs_err *err)
{
    struct stat st;
    int flags = 0;

    *output = (struct elf_output){.target = target, .folder = -1, .aside = -1, .fd = -1};
    memcpy(output->base, entry->base, sizeof output->base);
    output->folder = openat(entry->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (output->folder < 0)
        return gs_err_errno(err, -errno, "%s: cannot open its folder", output->target);
    if (ioctl(output->folder, FS_IOC_GETFLAGS, &flags) == 0 && (flags & FS_APPEND_FL)) {
        errno = EPERM; /* files made there could not be removed again */
        return fail_with_errno(output, "cannot write into its folder", err);
    }
    if (fstatat(output->folder, output->base, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        S_ISREG(st.st_mode) || S_ISLNK(st.st_mode))
        return 0;
    return gs_err_set(err, -EEXIST, "%s: is %s and is left unchanged; name a file",
                      output->target, S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
}

/* Takes a name beside the target, by a call that gives -EEXIST if the name exists. A file of a
 * killed run is removed, that of a running run stays. 0 or -errno. */
static int take_name(struct elf_output *output, char into[NAME_MAX + 1],
                     int (*take)(struct elf_output *, const char *))
{
    char name[NAME_MAX + 1];
    uint64_t random;
    int ret;

    elf_leftover_name(name, output->base);
    ret = take(output, name);
    if (ret == -EEXIST) {
        elf_leftover_sweep(output->folder, name);
        ret = take(output, name);
    }
    if (ret == -EEXIST) { /* a file that cannot be removed has that name */
        if (getrandom(&random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random)
            random = (uint64_t)getpid();
        print_name(name, random);
        ret = take(output, name);
    }
    if (ret == 0)
        memcpy(into, name, sizeof name);
    return ret;
}

static int link_it(const struct elf_output *output, int folder, const char *name)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/self/fd/%d", output->fd);
    return linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

static int take_by_link(struct elf_output *output, const char *name)
{
    return link_it(output, output->folder, name);
}

static int take_by_making(struct elf_output *output, const char *name)
{
    output->fd = openat(output->folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return output->fd >= 0 ? 0 : -errno;
}

static int take_by_folder(struct elf_output *output, const char *name)
{
    return mkdirat(output->folder, name, 0700) == 0 ? 0 : -errno;
}

static int name_it(struct elf_output *output, struct gs_err *err)
{
    int ret = 0;

    if (output->temporary[0] != '\0')
        return 0;
    if (output->aside < 0)
        ret = take_name(output, output->temporary, take_by_link);
    else if ((ret = link_it(output, output->aside, ELF_LEFTOVER_INNER)) == 0)
        strcpy(output->temporary, ELF_LEFTOVER_INNER);
    return ret == 0 ? 0
                    : gs_err_errno(err, ret,
                                   "%s: cannot give the new file a name (is /proc mounted?)",
                                   output->target);
}

/* Before the new file gets the rights of another user: makes a folder that only we may
 * enter. There the file gets its name before it takes the target's, so that a crash does
 * not leave such a file where others can run it. 0 or -errno. */
static int hide_output(struct elf_output *output, struct gs_err *err)
{
    int ret = take_name(output, output->aside_name, take_by_folder);

    if (ret == 0)
        output->aside = openat(output->folder, output->aside_name,
                               O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (ret == 0 && output->aside < 0)
        ret = -errno;
    if (ret == 0 && output->temporary[0] != '\0') {
        ret = renameat(output->folder, output->temporary, output->aside, ELF_LEFTOVER_INNER);
        ret = ret == 0 ? 0 : -errno;
        if (ret == 0)
            strcpy(output->temporary, ELF_LEFTOVER_INNER);
    }
    return ret == 0 ? 0
                    : gs_err_errno(err, ret, "%s: cannot create a folder for the new file",
                                   output->target);
}

/* The folder in which the new file has its temporary name. */
static int holding_folder(const struct elf_output *output)
{
    return output->temporary[0] != '\0' && output->aside >= 0 ? output->aside : output->folder;
}

static void drop_aside(struct elf_output *output)
{
    if (output->aside_name[0] != '\0')
        unlinkat(output->folder, output->aside_name, AT_REMOVEDIR);
    output->aside_name[0] = '\0';
    if (output->aside >= 0)
        close(output->aside);
    output->aside = -1;
}

int elf_output_open(struct elf_output *output, const struct elf_entry *entry,
                    const char *target, struct gs_err *err)
{
    int ret;

    ret = open_folder(output, entry, target, err);
    if (ret != 0) {
        elf_output_deinit(output);
        return ret;
    }
    output->fd = openat(output->folder, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (output->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == ENOENT))
        take_name(output, output->temporary, take_by_making);
    if (output->fd < 0) {
        ret = fail_with_errno(output, "cannot write into its folder", err);
        elf_output_deinit(output);
        return ret;
    }
    flock(output->fd, LOCK_EX | LOCK_NB); /* it is in work while the descriptor is open */
    return 0;
}

int elf_output_link(struct elf_output *output, const struct elf_entry *entry,
                    const char *target, int existing, struct gs_err *err)
{
    int ret;

    ret = open_folder(output, entry, target, err);
    if (ret == 0) {
        output->fd = fcntl(existing, F_DUPFD_CLOEXEC, 0);
        ret = output->fd >= 0 ? name_it(output, err)
                              : fail_with_errno(output, "cannot rename the new file", err);
    }
    if (ret != 0)
        elf_output_deinit(output);
    return ret;
}

void elf_output_deinit(struct elf_output *output)
{
    if (output->temporary[0] != '\0')
        unlinkat(holding_folder(output), output->temporary, 0);
    output->temporary[0] = '\0';
    drop_aside(output);
    if (output->fd >= 0)
        close(output->fd);
    if (output->folder >= 0)
        close(output->folder);
    output->fd = output->folder = -1;
}

int elf_output_write(struct elf_output *output, uint64_t offset, const void *bytes,
                     size_t length, struct gs_err *err)
{
    const uint8_t *from = bytes;

    while (length > 0) {
        ssize_t n = pwrite(output->fd, from, length, (off_t)offset);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return fail_with_errno(output, "cannot write the new file", err);
        from += n;
        offset += (uint64_t)n;
        length -= (size_t)n;
    }
    return 0;
}

int elf_output_share(struct elf_output *output, int from, uint64_t size, struct gs_err *err)
{
    if (ioctl(output->fd, FICLONE, from) != 0)
        return 0;
    if (ftruncate(output->fd, (off_t)size) != 0)
        return gs_err_errno(err, -errno, "%s: cannot truncate the new file", output->target);
    return 1;
}

static int check_unchanged(const struct elf_output *output, const struct stat *old,
                           struct gs_err *err)
{
    struct stat now;

    if (old == NULL)
        return 0;
    if (fstatat(output->folder, output->base, &now, AT_SYMLINK_NOFOLLOW) == 0 &&
        gs_same_inode(&now, old) && now.st_size == old->st_size &&
        now.st_mtim.tv_sec == old->st_mtim.tv_sec &&
        now.st_mtim.tv_nsec == old->st_mtim.tv_nsec)
        return 0;
    return gs_err_set(err, -ESTALE,
                      "%s: another process changed it in the meantime; it is left unchanged, "
                      "try again",
                      output->target);
}

int elf_output_commit(struct elf_output *output, const struct stat *old, bool sync,
                      struct gs_err *err)
{
    int ret;

    if (sync && fsync(output->fd) != 0)
        return fail_with_errno(output, "cannot sync the new file", err);
    elf_fault();
    ret = name_it(output, err);
    elf_fault();
    ret = ret ?: check_unchanged(output, old, err);
    if (ret != 0)
        return ret;
    if (renameat(holding_folder(output), output->temporary, output->folder, output->base) != 0)
        return fail_with_errno(output, "cannot put the new file in place", err);
    output->temporary[0] = '\0';
    elf_fault();
    drop_aside(output);
    if (sync && fsync(output->folder) != 0 && errno != EINVAL)
        return gs_err_errno(err, -errno,
                            "%s: is written, but its folder could not be synced to the disk",
                            output->target);
    elf_fault();
    return 0;
}

/* Copies mode, owner, access lists and other extended attributes to the new file. It does
 * not copy the time of the last change, by which other programs see that the content
 * changed. */

#define MAX_LIST  ((size_t)64 * 1024) /* XATTR_LIST_MAX */
#define MAX_VALUE ((size_t)64 * 1024) /* XATTR_SIZE_MAX */

static int copy_one(struct elf_output *output, int from, const char *name, uint8_t *value,
                    struct gs_err *err)
{
    ssize_t size = fgetxattr(from, name, value, MAX_VALUE);

    if (size < 0)
        return errno == ENODATA ? 0
                                : gs_err_errno(err, -errno, "%s: cannot read its attribute %s",
                                               output->target, name);
    if (fsetxattr(output->fd, name, value, (size_t)size, 0) == 0)
        return 0;
    if (strcmp(name, "security.selinux") == 0 || strncmp(name, "trusted.", 8) == 0)
        return 0; /* only the system may set these */
    return gs_err_errno(err, -errno, "%s: cannot copy its attribute %s", output->target, name);
}

static int copy_extended(struct elf_output *output, int from, bool whole, struct gs_err *err)
{
    char *list = malloc(MAX_LIST);
    uint8_t *value = malloc(MAX_VALUE);
    ssize_t size = list != NULL && value != NULL ? flistxattr(from, list, MAX_LIST) : -1;
    int ret = 0;

    if (list == NULL || value == NULL)
        ret = gs_err_set(err, -ENOMEM, "%s: no memory", output->target);
    else if (size < 0 && errno != ENOTSUP)
        ret = gs_err_errno(err, -errno, "%s: cannot list its attributes", output->target);
    /* signatures of the old content are not valid for the new content */
    for (ssize_t at = 0; ret == 0 && at < size; at += (ssize_t)strlen(list + at) + 1)
        if (strcmp(list + at, "security.ima") != 0 && strcmp(list + at, "security.evm") != 0 &&
            (whole || strcmp(list + at, "security.capability") != 0))
            ret = copy_one(output, from, list + at, value, err);
    free(list);
    free(value);
    return ret;
}

/* Gives the file to the old one's owner and group. */
static int keep_owner(struct elf_output *output, int from, const struct stat *old,
                      const struct stat *new, struct gs_err *err)
{
    if ((old->st_uid == new->st_uid && old->st_gid == new->st_gid) ||
        fchown(output->fd, old->st_uid, old->st_gid) == 0)
        return 0;
    if (old->st_uid != new->st_uid)
        return gs_err_errno(
            err, -errno, "%s: belongs to user %u, group %u; run this as that user or as root",
            output->target, old->st_uid, old->st_gid);
    if ((old->st_mode & S_ISGID) != 0 ||
        fgetxattr(from, "system.posix_acl_access", NULL, 0) > 0)
        return gs_err_errno(err, -errno,
                            "%s: belongs to group %u, which you are not in, and gives that "
                            "group rights of its own; run this as root",
                            output->target, old->st_gid);
    output->group_lost = true;
    return 0;
}

int elf_output_attributes(struct elf_output *output, int from, bool whole,
                          const struct timespec *changed, struct gs_err *err)
{
    struct stat old, new;
    struct timespec times[2];
    mode_t mode;
    int ret;

    if (fstat(from, &old) != 0 || fstat(output->fd, &new) != 0)
        return gs_err_errno(err, -errno, "%s: cannot stat", output->target);
    ret = whole ? keep_owner(output, from, &old, &new, err) : 0;
    elf_fault();
    if (ret != 0)
        return ret;
    /* Removes a folder's default access list, which would give the new file rights that the old one
     * did not have. Before the mode is set: while there is a list, the group part of the mode is the
     * list's mask. */
    if (fremovexattr(output->fd, "system.posix_acl_access") != 0 && errno != ENODATA &&
        errno != EOPNOTSUPP)
        return gs_err_errno(err, -errno,
                            "%s: cannot remove the access list inherited from its folder",
                            output->target);
    mode = old.st_mode & (whole ? 07777 : 0777);
    if (output->group_lost)
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    if (whole && ((mode & (S_ISUID | S_ISGID)) != 0 ||
                  fgetxattr(from, "security.capability", NULL, 0) > 0))
        ret = hide_output(output, err);
    if (ret != 0)
        return ret;
    if (fchmod(output->fd, mode) != 0) /* after the owner: changing that clears setuid */
        return gs_err_errno(err, -errno, "%s: cannot set the mode", output->target);
    ret = copy_extended(output, from, whole, err); /* after writing: that clears capabilities */
    elf_fault();
    times[0] = old.st_atim;
    times[1] = changed != NULL ? *changed : (struct timespec){.tv_nsec = UTIME_NOW};
    if (ret == 0 && futimens(output->fd, times) != 0)
        ret = gs_err_errno(err, -errno, "%s: cannot set the times", output->target);
    return ret;
}

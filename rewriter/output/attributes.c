/* SPDX-License-Identifier: Apache-2.0
 *
 * attributes.c: copies mode, owner, access lists and other extended attributes to the new file.
 * It does not copy the time of the last change, by which other programs see that the content
 * changed.
 *
 * No state, any thread.
 */
#include "rewriter/output/fault.h"
#include "rewriter/output/attributes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#define MAX_LIST  ((size_t)64 * 1024) /* XATTR_LIST_MAX */
#define MAX_VALUE ((size_t)64 * 1024) /* XATTR_SIZE_MAX */

/* Signatures of the old content are not valid for the new content; labels of SELinux come from the
 * folder's rules. */
static bool is_skipped(const char *name, bool whole)
{
    if (strcmp(name, "security.ima") == 0 || strcmp(name, "security.evm") == 0)
        return true;
    return !whole && strcmp(name, "security.capability") == 0;
}

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

/* Removes a folder's default access list, which would give the new file rights that the old one
 * did not have. Before the mode is set: while there is a list, the group part of the mode is the
 * list's mask. */
static int drop_inherited(struct elf_output *output, struct gs_err *err)
{
    if (fremovexattr(output->fd, "system.posix_acl_access") == 0 || errno == ENODATA ||
        errno == EOPNOTSUPP)
        return 0;
    return gs_err_errno(err, -errno,
                        "%s: cannot remove the access list inherited from its folder",
                        output->target);
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
    for (ssize_t at = 0; ret == 0 && at < size; at += (ssize_t)strlen(list + at) + 1)
        if (!is_skipped(list + at, whole))
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
    ret = ret ?: drop_inherited(output, err);
    if (ret != 0)
        return ret;
    mode = old.st_mode & (whole ? 07777 : 0777);
    if (output->group_lost)
        mode &= ~(mode_t)070 | (mode & 07) << 3;
    if (whole && ((mode & (S_ISUID | S_ISGID)) != 0 ||
                  fgetxattr(from, "security.capability", NULL, 0) > 0))
        ret = elf_output_hide(output, err);
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

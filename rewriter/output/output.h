/* SPDX-License-Identifier: Apache-2.0
 *
 * output.h: a new file that takes the place of an old file in one step or not at all.
 */
#pragma once

#include "rewriter/output/folder_entry.h"
#include "rewriter/elf/image.h"

#include <sys/stat.h>

/* The names of new files until they take the place of the old files. A run that is killed
 * leaves them behind, and the next one removes them.
 *
 * The name is .gpushare-patch.XXXXXXXXXXXXXXXX, beside the target. For a program that runs
 * with the rights of its owner (setuid) it is a folder, which only the owner may enter,
 * with the file in it. */

/* The name for a target called `base`: the same in every run, so that the next run finds it. */
void elf_leftover_name(char name[NAME_MAX + 1], const char *base);

/* Whether a name is one of these. */
bool elf_leftover_is_one(const char *name);

/* Removes `name` from the folder, unless a running gpushare-patch holds it, or it is none of
 * ours. A file that cannot be removed stays. */
void elf_leftover_sweep(int folder, const char *name);

struct elf_output {
    const char *target;           /* path that it will have, for messages */
    int folder;                   /* descriptor of the target's folder */
    int fd;                       /* the new file, open for reading and writing */
    char base[NAME_MAX + 1];      /* the target's name in its folder */
    char temporary[NAME_MAX + 1]; /* its name until the commit, or "" while it has none */
    int aside;                    /* folder of its own for that name, or -1 */
    char aside_name[NAME_MAX + 1];
    bool group_lost; /* the old file's group could not be kept, see elf_output_attributes() */
};

/* Makes a new file in the folder of the entry: without a name if the file system can do that
 * (then a crash before the commit leaves nothing behind), else with a name of a leftover.
 * `target` is the entry's path, for messages; it must outlive output, the entry need not. 0 or
 * -errno. */
int elf_output_open(struct elf_output *output, const struct elf_entry *entry,
                    const char *target, struct gs_err *err);

/* The same with an existing file (a descriptor of it) as the new file: the entry becomes
 * another name of that file. */
int elf_output_link(struct elf_output *output, const struct elf_entry *entry,
                    const char *target, int existing, struct gs_err *err);

/* Removes a file that was not committed. Accepts a zeroed struct with its descriptors -1. */
void elf_output_deinit(struct elf_output *output);

/* Makes the first `size` bytes those of from by sharing them (reflink). 1; 0 when the file
 * system cannot do that; or -errno. */
int elf_output_share(struct elf_output *output, int from, uint64_t size, struct gs_err *err);

int elf_output_write(struct elf_output *output, uint64_t offset, const void *bytes,
                     size_t length, struct gs_err *err);

/* Syncs the file, gives it its name in one step, and syncs the folder; without `sync` only the
 * name (then a power failure may leave a damaged file). If `old` is not NULL, the target must
 * still be that file (else -ESTALE). */
int elf_output_commit(struct elf_output *output, const struct stat *old, bool sync,
                      struct gs_err *err);

/* Gives the new file mode and extended attributes (access lists, capabilities) of from. If whole
 * is set, it gets its owner as well, else none of the rights that belong to an owner (setuid,
 * capabilities). An owner who is not in the file's group cannot give it away again: then group_lost
 * is set, and the new group may do what all may, unless rights of the group itself are at stake.
 * `changed` is the time of its last change; NULL: now. */
int elf_output_attributes(struct elf_output *output, int from, bool whole,
                          const struct timespec *changed, struct gs_err *err);

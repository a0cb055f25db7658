/* SPDX-License-Identifier: Apache-2.0
 *
 * leftover.h: the names of new files until they take the place of the old files. A run that is
 * killed leaves them behind, and the next one removes them.
 *
 * The name is .gpushare-patch.XXXXXXXXXXXXXXXX, beside the target. For a program that runs with
 * the rights of its owner (setuid) it is a folder, which only the owner may enter, with the file
 * in it.
 */
#ifndef REWRITER_LEFTOVER_H
#define REWRITER_LEFTOVER_H

#include <limits.h>
#include <stdbool.h>

#define ELF_LEFTOVER_INNER "new" /* the file in such a folder */

/* The name for a target called `base`: the same in every run, so that the next run finds it. */
void elf_leftover_name(char name[NAME_MAX + 1], const char *base);
/* Another name, if a file that cannot be removed has that name. */
void elf_leftover_random_name(char name[NAME_MAX + 1]);

/* Whether a name is one of these. */
bool elf_leftover_is_one(const char *name);

/* Marks the file as in work, for as long as the descriptor is open. */
void elf_leftover_hold(int fd);

/* Removes `name` from the folder, unless a running gpushare-patch holds it, or it is none of
 * ours. A file that cannot be removed stays. */
void elf_leftover_sweep(int folder, const char *name);

#endif

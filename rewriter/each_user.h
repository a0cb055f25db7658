/* SPDX-License-Identifier: Apache-2.0
 *
 * each_user.h: work as other users, each in a process of its own.
 */
#ifndef REWRITER_EACH_USER_H
#define REWRITER_EACH_USER_H

#include "rewriter/job/act.h"
#include "rewriter/output/registry.h"

typedef enum elf_exit elf_undo_call(const struct elf_listed *entry,
                                    const struct elf_options *options);

/* The worse of two results; "nothing to do" is better than "done". */
enum elf_exit elf_undo_both(enum elf_exit a, enum elf_exit b);

/* Calls it, with no entry, for each user that has a home, and each owner of a folder in /home, in
 * a child process that has become that user. Root only. The worst result. */
enum elf_exit elf_undo_each_user(elf_undo_call *call, const struct elf_options *options);

/* Calls it in a child process that has become that user for good: user, group, groups, HOME.
 * False if the process failed; the result is ELF_EXIT_FAILED then. Root only. */
bool elf_undo_call_as(uid_t user, gid_t group, elf_undo_call *call,
                      const struct elf_listed *entry, const struct elf_options *options,
                      enum elf_exit *result);

#endif

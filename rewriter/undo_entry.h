/* SPDX-License-Identifier: Apache-2.0
 *
 * undo_entry.h: one file of the list of patched files.
 */
#ifndef REWRITER_UNDO_ENTRY_H
#define REWRITER_UNDO_ENTRY_H

#include "rewriter/job/act.h"
#include "rewriter/output/registry.h"

/* Work as another user, in a process of its own. */
typedef enum elf_exit elf_undo_call(const struct elf_listed *entry,
                                    const struct elf_options *options);

/* The worse of two results; "nothing to do" is better than "done". */
enum elf_exit elf_undo_both(enum elf_exit a, enum elf_exit b);

/* Calls it, with no entry, for each user that has a home, and each owner of a folder in
 * /home, in a child process that has become that user. Root only. The worst result. */
enum elf_exit elf_undo_each_user(elf_undo_call *call, const struct elf_options *options);

/* Calls it in a child process that has become that user for good: user, group, groups, HOME.
 * False if the process failed; the result is ELF_EXIT_FAILED then. Root only. */
bool elf_undo_call_as(uid_t user, gid_t group, elf_undo_call *call,
                      const struct elf_listed *entry, const struct elf_options *options,
                      enum elf_exit *result);

/* The present state of a listed file. */
enum elf_undo_state {
    ELF_UNDO_PATCHED,  /* as it was listed */
    ELF_UNDO_GONE,     /* nothing is there */
    ELF_UNDO_REPLACED, /* another file or a link, which is not patched */
    ELF_UNDO_OTHER,    /* patched, but with another original than was listed, or damaged */
    ELF_UNDO_HIDDEN,   /* this user cannot look at it */
};

/* Looks at a listed file without following links. owner and group may be NULL; set if something
 * is there. */
enum elf_undo_state elf_undo_look(const struct elf_listed *entry, uid_t *owner, gid_t *group);

/* Whether the file is patched for another library than that one, whatever the path to it. */
bool elf_undo_is_for_another(const struct elf_listed *entry, const char *runtime);

/* Restores one file, as its owner if root called; no link is followed. */
enum elf_exit elf_undo_restore(const struct elf_listed *entry,
                               const struct elf_options *options);

/* The same for the folder that --venv or --tree was given. */
enum elf_exit elf_undo_restore_root(const struct elf_listed *entry,
                                    const struct elf_options *options);

#endif

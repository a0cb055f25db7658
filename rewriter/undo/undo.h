/* SPDX-License-Identifier: Apache-2.0
 *
 * undo.h: --list, --restore-all and --repatch: what becomes of the files in the list of patched
 * ones (registry/registry.h).
 */
#ifndef REWRITER_UNDO_UNDO_H
#define REWRITER_UNDO_UNDO_H

#include "rewriter/job/act.h"
#include "rewriter/registry/registry.h"

/* What has become of a listed file. */
enum elf_undo_state {
    ELF_UNDO_PATCHED,  /* as it was listed */
    ELF_UNDO_GONE,     /* nothing is there */
    ELF_UNDO_REPLACED, /* another file or a link, and not patched */
    ELF_UNDO_OTHER,    /* patched, but another original than was listed, or damaged */
    ELF_UNDO_HIDDEN,   /* this user cannot look at it */
};

/* Does what the options ask for to the list of this user or, with all_users, of all. Reports to
 * stdout and stderr. ELF_EXIT_NOTHING if nothing is listed, ELF_EXIT_FAILED if something could
 * not be restored. */
enum elf_exit elf_undo(const struct elf_options *options);

/* The same for this user alone. each_user.c calls it in a process of that user. */
enum elf_exit elf_undo_own(const struct elf_options *options);

/* Calls elf_undo_own() for each user that has a home, and each owner of a folder in /home, in a
 * child process that has become that user. Root only. */
enum elf_exit elf_undo_each_user(const struct elf_options *options);

typedef enum elf_exit elf_undo_call(const struct elf_listed *entry,
                                    const struct elf_options *options);

/* Calls it in a child process that has become that user for good: user, group, groups, HOME.
 * False if the process failed; the result is ELF_EXIT_FAILED then. Root only. */
bool elf_undo_call_as(uid_t user, gid_t group, elf_undo_call *call,
                      const struct elf_listed *entry, const struct elf_options *options,
                      enum elf_exit *result);

/* Looks at a listed file without following links. owner and group may be NULL; set if something
 * is there. */
enum elf_undo_state elf_undo_look(const struct elf_listed *entry, uid_t *owner, gid_t *group);

/* Whether the file is patched, and for another library than that, whatever the path to it. */
bool elf_undo_is_for_another(const struct elf_listed *entry, const char *runtime);

/* Restores one file, as its owner where root was called; no link is followed. */
enum elf_exit elf_undo_restore(const struct elf_listed *entry,
                               const struct elf_options *options);

/* The same for the folder that --venv or --tree was given. */
enum elf_exit elf_undo_restore_root(const struct elf_listed *entry,
                                    const struct elf_options *options);

/* The worse of two, where nothing is better than done. */
enum elf_exit elf_undo_both(enum elf_exit a, enum elf_exit b);

/* Whether a removed gpushare has left a stub in the library's place (file `stub` beside the
 * list names it). */
bool elf_undo_has_stub(void);

/* Removes the stub, and what was left with it. */
void elf_undo_drop_stub(void);

#endif

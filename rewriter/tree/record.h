/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: keeps the RECORD of Python wheels true, which lists every file with SHA-256 and
 * size (PyPA "Recording installed projects"): pip check-like tools would complain otherwise.
 */
#ifndef REWRITER_TREE_RECORD_H
#define REWRITER_TREE_RECORD_H

#include "rewriter/tree/walk.h"

/* Puts hash and size of those of the changed files that a RECORD lists with SHA-256 to what
 * they are now, and then of those RECORDs themselves where others list them. All paths are full
 * ones without links, sorted by strcmp; nothing outside of root is opened. `lines` gets the
 * number of lines that changed. A RECORD that cannot be changed is named on stderr, and sets
 * `failed`. 0 or -ENOMEM. */
int elf_record_update(const struct elf_root *root, const struct elf_paths *records,
                      const struct elf_paths *changed, size_t *lines, bool *failed);

#endif

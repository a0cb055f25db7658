/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: keeps the RECORD of Python wheels true, which lists every file with SHA-256 and
 * size (PyPA "Recording installed projects"): pip check-like tools would complain otherwise.
 */
#ifndef REWRITER_TREE_RECORD_H
#define REWRITER_TREE_RECORD_H

#include "rewriter/tree/walk.h"

/* Puts hash and size of those of the changed files (real paths, sorted by strcmp) that the
 * RECORD at `path` lists with SHA-256 to what they are now. `lines` grows by the number of
 * lines that changed; `lists` gets whether it lists any of the files. Nothing outside of root
 * is opened. 0 or a negative errno. */
int elf_record_update(const struct elf_root *root, const char *path,
                      const struct elf_paths *changed, size_t *lines, bool *lists,
                      struct gs_err *err);

#endif

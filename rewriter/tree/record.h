/* SPDX-License-Identifier: Apache-2.0
 *
 * record.h: keeps the RECORD of Python wheels right. It lists every file with SHA-256 and size
 * (PyPA "Recording installed projects"); tools that check it would complain otherwise.
 */
#pragma once

#include "rewriter/tree/walk.h"

/* Updates hash and size of the changed files in each RECORD that lists them with SHA-256, and
 * then of those RECORDs themselves in others. All paths are full paths without links, sorted by
 * strcmp; nothing outside root is opened. `lines` gets the number of lines that changed. A
 * RECORD that cannot be changed is named on stderr, and sets `failed`. 0 or -ENOMEM. */
int elf_record_update(const struct elf_root *root, const struct elf_paths *records,
                      const struct elf_paths *changed, size_t *lines, bool *failed);

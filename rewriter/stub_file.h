/* SPDX-License-Identifier: Apache-2.0
 *
 * stub_file.h: the stub that a removed gpushare has left in the library's place.
 */
#ifndef REWRITER_STUB_FILE_H
#define REWRITER_STUB_FILE_H

#include <stdbool.h>

/* Whether a removed gpushare has left a stub in the library's place (file `stub` beside the
 * list names it). */
bool elf_undo_has_stub(void);

/* Removes the stub, and the files that were left with it. */
void elf_undo_drop_stub(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h: the new file opened with libelf.
 */
#ifndef REWRITER_VERIFY_SESSION_H
#define REWRITER_VERIFY_SESSION_H

#include "rewriter/verify/second_parts.h"

/* Opens the new file with libelf; NULL with err filled. To be ended with elf_end(). */
Elf *elf_second_begin(const struct elf_second *second, struct gs_err *err);

/* libelf cannot read a part. Always -EIO, with libelf's reason in err. */
int elf_second_fail(const struct elf_second *second, const char *what, struct gs_err *err);

/* The file offset of that address by the program headers as libelf reads them, and the number of
 * bytes from there to the end of the segment's file part. 0 or -EIO. */
int elf_second_offset(const struct elf_second *second, uint64_t address, uint64_t *offset,
                      uint64_t *rest, struct gs_err *err);

#endif

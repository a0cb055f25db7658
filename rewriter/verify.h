/* SPDX-License-Identifier: Apache-2.0
 *
 * verify.h: the new file is read back and compared with what it should be, before it replaces
 * the old one.
 */
#ifndef REWRITER_VERIFY_H
#define REWRITER_VERIFY_H

#include "rewriter/plan.h"

/* Compares every byte of the new file (fd) with the original plus the plan, writes the SHA-256
 * of the original that this pass computed into digest. 0, or -EIO naming the first wrong
 * offset. */
int elf_verify_bytes(const struct elf_plan *plan, int fd, uint8_t digest[ELF_SHA256_SIZE],
                     struct gs_err *err);

/* Reads the new file as if it were any other and checks that it means the same as the original:
 * segments, dynamic entries, names of symbols, undo note. 0 or -EIO. */
int elf_verify_meaning(const struct elf_plan *plan, int fd, struct gs_err *err);

/* Lets the system's dynamic loader check the new file (ld.so --verify) if it is for this
 * machine's. 0; -EIO; -ENOEXEC when it does not accept the original (old) either. */
int elf_verify_loader(const struct elf_image *image, int old, int fd, struct gs_err *err);

/* Checks that the file (fd) has this size and SHA-256. 0 or -EIO. */
int elf_verify_digest(const char *name, int fd, uint64_t size,
                      const uint8_t digest[ELF_SHA256_SIZE], struct gs_err *err);

#endif

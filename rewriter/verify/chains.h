/* SPDX-License-Identifier: Apache-2.0
 *
 * chains.h: the second reader's check of DT_VERNEED and DT_VERDEF.
 */
#ifndef REWRITER_VERIFY_CHAINS_H
#define REWRITER_VERIFY_CHAINS_H

#include "rewriter/verify/second_parts.h"

/* Checks DT_VERNEED and DT_VERDEF at these addresses, which libelf gave (0: not there). 0 or a
 * negative errno. */
int elf_second_versions(const struct elf_second *second, uint64_t needed, uint64_t defined,
                        struct gs_err *err);

#endif

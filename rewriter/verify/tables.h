/* SPDX-License-Identifier: Apache-2.0
 *
 * tables.h: the second reader's check of the dynamic linker's tables.
 */
#pragma once

#include "rewriter/verify/session.h"

/* Checks the tables of the dynamic linker: dynamic entries, strings, hash tables, symbols,
 * versions, relocations. `segments` are known. 0 or a negative errno. */
int elf_second_tables(const struct elf_second *second, struct gs_err *err);

/* SPDX-License-Identifier: Apache-2.0
 *
 * second.h: the new file as libelf reads it.
 */
#pragma once

#include "rewriter/plan/plan.h"

/* Reads the new file (fd) with libelf, and checks that libelf's answers agree with our own
 * reader (new) and with the plan: headers, sections, dynamic entries, strings, hash tables,
 * symbols, versions, relocations. 0; -EIO if they disagree or libelf cannot read it. Any number
 * of threads, each with a descriptor of its own. */
int elf_verify_second(const struct elf_plan *plan, const struct elf_image *new, int fd,
                      struct gs_err *err);

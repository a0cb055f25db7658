/* SPDX-License-Identifier: Apache-2.0
 *
 * undo.h: --list, --restore-all and --repatch: the work on the list of patched files
 * (output/registry.h).
 */
#pragma once

#include "rewriter/job/act.h"

/* Does what the options ask for with the list of this user or, with all_users, of all. Reports
 * to stdout and stderr. ELF_EXIT_NOTHING if nothing is listed, ELF_EXIT_FAILED if something
 * could not be restored. */
enum elf_exit elf_undo(const struct elf_options *options);

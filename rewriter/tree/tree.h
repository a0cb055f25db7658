/* SPDX-License-Identifier: Apache-2.0
 *
 * tree.h: --tree and --venv.
 */
#pragma once

#include "rewriter/job/act.h"

/* Does what the options ask for to every file below the folder of --tree or --venv that reaches
 * CUDA; reports to stdout and stderr. Starts threads and awaits them. */
enum elf_exit elf_tree(const struct elf_options *options);

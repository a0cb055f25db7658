/* SPDX-License-Identifier: Apache-2.0
 *
 * outside.h: what the libraries below a folder bring along from elsewhere, and what no patch of a
 * library can route.
 */
#ifndef REWRITER_TREE_OUTSIDE_H
#define REWRITER_TREE_OUTSIDE_H

#include "rewriter/job/options.h"
#include "rewriter/tree/walk.h"

/* Names on stderr each library that uses CUDA, whose calls are routed only in a patched program:
 * a library that these load from outside the root, and a library of these that imports nothing to
 * route. With --venv the interpreter routes for all of them. */
void elf_outside_say(const struct elf_root *root, const struct elf_paths *libraries,
                     const struct elf_options *options);

#endif

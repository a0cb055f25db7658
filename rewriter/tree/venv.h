/* SPDX-License-Identifier: Apache-2.0
 *
 * venv.h: the interpreter of a Python environment, which usually is a link to the system's.
 *
 * The system's interpreter must not be patched. So the link becomes a patched copy of it. A
 * Python environment works with a copy as well (venv --copies makes one), because the interpreter
 * finds pyvenv.cfg from its own place.
 */
#pragma once

#include "rewriter/tree/manifest.h"

/* Follows python and the like in bin of the environment, each to the first link that leads out
 * of it, and adds those links to the manifest. `count` gets the number of links that the
 * manifest has then. 0 or a negative errno. */
int elf_venv_links(const struct elf_root *root, struct elf_manifest *manifest, size_t *count,
                   struct gs_err *err);

/* The environment of the following functions is options->within.root. */

/* Replaces each link of the manifest by a patched copy of its target. */
enum elf_exit elf_venv_patch(const struct elf_manifest *manifest,
                             const struct elf_options *options);

/* Puts the links back. 0 or a negative errno. */
int elf_venv_restore(const struct elf_manifest *manifest, const struct elf_options *options,
                     struct gs_err *err);

/* Whether every link of the manifest is a patched copy of its present target; names the others
 * on stderr. */
bool elf_venv_check(const struct elf_manifest *manifest, const struct elf_options *options);

/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h: which symbols are routed, and which show that a file deals with CUDA. All from
 * wrap/driver_api.def.
 */
#ifndef REWRITER_ELF_NAMES_H
#define REWRITER_ELF_NAMES_H

#include <stddef.h>
#include <stdint.h>

#define ELF_WRAP_PREFIX "__wrap_"

/* dlsym, dlvsym, or a driver function that is not passed through: a reference to it becomes
 * __wrap_<name>. */
int elf_name_is_wrapped(const char *name);

/* The CUDA version (1000 * major + 10 * minor) a driver function appeared in; 0 if the table
 * does not have the name. */
int elf_name_driver_since(const char *name);

/* A name of the CUDA runtime API or of its compiler support: cudaMalloc,
 * __cudaRegisterFatBinary, ... */
int elf_name_is_runtime_api(const char *name);

/* A number that changes whenever the wrap list does: files patched by another list are patched
 * anew. */
uint32_t elf_names_fingerprint(void);

/* The wrap list, for tests: count and the name at an index, in strcmp order. */
size_t elf_names_wrapped_count(void);
const char *elf_names_wrapped(size_t index);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h: the symbols that are routed, and those that show that a file uses CUDA. All from
 * wrap/driver_api.def.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define ELF_WRAP_PREFIX "__wrap_"

/* True for dlsym, dlvsym and driver functions that are not passed through: a reference to them
 * becomes __wrap_<name>. */
int elf_name_is_wrapped(const char *name);

/* The CUDA version (1000 * major + 10 * minor) a driver function appeared in; 0 if the table
 * does not have the name. */
int elf_name_driver_since(const char *name);

/* The longest driver function that the text begins with, which need not end there; NULL: none. */
const char *elf_name_driver_start(const char *text, size_t length);

/* A name of the CUDA runtime API or of its compiler support: cudaMalloc,
 * __cudaRegisterFatBinary, ... */
int elf_name_is_runtime_api(const char *name);

/* A number that changes whenever the wrap list does: files patched with another list are patched
 * again. */
uint32_t elf_names_fingerprint(void);

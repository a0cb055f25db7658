/* SPDX-License-Identifier: Apache-2.0
 *
 * object.h: what a file says to the loader, and whether it reaches CUDA by itself. Each file is
 * read once in a run, since most programs share their libraries.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define ELF_WHY_MAX 160

struct elf_object {
    dev_t device;
    ino_t inode;
    bool valid; /* an ELF file that the loader accepts; else nothing below is set */
    bool program;
    bool reaches;     /* uses CUDA by itself */
    bool mute;        /* reaches CUDA by nothing that its own patch could route */
    bool patched;     /* its own calls are routed */
    bool can_dlopen;  /* imports dlopen or dlmopen */
    bool no_defaults; /* DF_1_NODEFLIB: neither the cache nor the default folders */
    unsigned machine;
    char *soname, *rpath, *runpath; /* each NULL if there is none; RUNPATH disables RPATH */
    char **needed;                  /* DT_NEEDED, and the libraries that filter it */
    size_t needed_count;
    char **named; /* libraries that its data names, perhaps for dlopen */
    size_t named_count;
    char why[ELF_WHY_MAX]; /* a clause, see elf_facts_why() */
};

/* The files that were read in this run. Any thread. */
struct elf_reach;

struct elf_reach *elf_reach_new(void); /* NULL: no memory */
void elf_reach_free(struct elf_reach *reach);

/* Reads the file, or finds what was read before. NULL if it cannot be opened or there is no
 * memory. The object lives as long as reach. */
const struct elf_object *elf_reach_object(struct elf_reach *reach, const char *path);

/* SPDX-License-Identifier: Apache-2.0
 *
 * image.h: one ELF file, read and checked once.
 *
 * Everything in struct elf_image has been checked against the file's size and against each
 * other: tables lie inside the file, the string table ends with a NUL, segments ascend and do
 * not overlap. Its users need not check again.
 */
#pragma once

#include "common/err.h"
#include "rewriter/elf/source.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ELF_NO_SECTION 0 /* index 0 is never a real section */

/* A table of the dynamic linker: where it is, and how many bytes it has. */
struct elf_table {
    uint64_t address, offset, size; /* address 0: not there */
};

/* dynamic.c: PT_DYNAMIC, entry by entry */
struct elf_dynamic {
    Elf64_Dyn *entries; /* as in the file */
    size_t count;       /* entries before the first DT_NULL; `room` if there is none */
    size_t room;        /* entries that the segment has room for */
    uint64_t flags_1;   /* DT_FLAGS_1 */
    const char *soname; /* into string_bytes of the tables, or NULL */
};

/* dynamic.c: what the dynamic entries point at */
struct elf_tables {
    struct elf_table strings, symbols, versions, hash, gnu_hash, verneed, verdef;
    char *string_bytes; /* strings.size, ends with a NUL */
    size_t symbol_count;
    size_t gnu_hash_first; /* symbols from this number on are in DT_GNU_HASH; SIZE_MAX: none */
};

struct elf_image {
    struct elf_source source;
    Elf64_Ehdr header;
    Elf64_Phdr *segments; /* header.e_phnum; an empty PT_LOAD is a PT_NULL here */
    Elf64_Shdr *sections; /* section_count; NULL when the file has no section headers */
    size_t section_count;
    char *section_names; /* ends with a NUL */
    uint64_t section_names_size;

    size_t dynamic_segment; /* index of PT_DYNAMIC */
    struct elf_dynamic dynamic;
    struct elf_tables tables;

    char *interpreter;  /* NULL: none */
    uint64_t page;      /* largest page size of the machine, bytes */
    uint64_t highest;   /* first address above every PT_LOAD */
    uint64_t image_end; /* first file offset behind every PT_LOAD, see sums.h */
    uint64_t data_end;  /* first file offset behind everything that the headers describe */
};

void elf_image_deinit(struct elf_image *image);

/* The file offset of `size` bytes at `address`; they must all come from one PT_LOAD's file
 * part. 0 or -ENOENT. */
int elf_image_offset(const struct elf_image *image, uint64_t address, uint64_t size,
                     uint64_t *offset);

/* The index of the first section with that name, or ELF_NO_SECTION. */
size_t elf_image_section(const struct elf_image *image, const char *name);
const char *elf_image_section_name(const struct elf_image *image, size_t index);

/* The string at an offset of the dynamic string table, or NULL when it lies outside. */
const char *elf_image_string(const struct elf_image *image, uint64_t offset);

/* Whether there is something behind the described parts of the file that must stay at its end.
 * Zeros, which linkers leave there for alignment or for their next run, do not count. */
bool elf_image_has_payload(const struct elf_image *image);

/* Whether it is a program. A library can have an interpreter, too (libc.so.6 and
 * libcap.so.2 print a text when run). */
bool elf_image_is_program(const struct elf_image *image);

/* The first dynamic entry with that tag, or NULL. */
const Elf64_Dyn *elf_image_dynamic(const struct elf_image *image, int64_t tag);

/* "x86-64" or "aarch64". */
const char *elf_machine_name(unsigned machine);

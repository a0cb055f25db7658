/* SPDX-License-Identifier: Apache-2.0
 *
 * image.h: one ELF file, read and checked once.
 *
 * Everything in struct elf_image has been checked against the file's size and against each
 * other: tables lie inside the file, the string table ends with a NUL, segments ascend and do
 * not overlap. Its users need not check again.
 */
#pragma once

#include "common/each.h"
#include "common/err.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One changed range: `length` bytes at `offset`, which were `bytes`. */
struct elf_change {
    uint64_t offset;
    uint32_t length;
    const uint8_t *bytes;
};

/* The errors that name a file: it cannot be patched or restored; or what was made of it is wrong. */
#define elf_refuse(name, err, format, ...)                                                     \
    gs_err_set(err, -ENOEXEC, "%s: " format, name, ##__VA_ARGS__)
#define elf_distrust(name, err, format, ...)                                                   \
    gs_err_set(err, -EIO,                                                                      \
               "%s: " format "; the old file is left unchanged. Please report this", name,     \
               ##__VA_ARGS__)

/* The bytes of a file as they were before gpushare-patch changed it: a file that is already patched has
 * an undo note, and seen through it the source has its original size and bytes. So the rest of the
 * rewriter only deals with unpatched files. */
struct elf_source {
    const char *name;              /* for messages */
    int fd;                        /* read with pread; or -1 and memory */
    const uint8_t *memory;         /* tests and the fuzzer */
    uint64_t size;                 /* bytes that can be read, at most what the file has */
    const struct elf_change *undo; /* ascending, not overlapping; borrowed */
    size_t undo_count;
};

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

/* Reads exactly length bytes. 0; -ENOEXEC if they are not all inside the source (or the file
 * shrank meanwhile); or the negative errno of pread. */
int elf_source_read(const struct elf_source *source, uint64_t offset, void *buffer,
                    size_t length, struct gs_err *err);
/* As elf_source_read() into fresh memory, which the caller frees. NULL after an error; a length
 * of 0 gives one byte. */
void *elf_source_load(const struct elf_source *source, uint64_t offset, uint64_t length,
                      struct gs_err *err);
/* Writes the bytes of the changes that fall into [offset, offset + length) over buffer, in the
 * order of the list. */
void elf_changes_apply(const struct elf_change *changes, size_t count, uint64_t offset,
                       uint8_t *buffer, size_t length);

/* SPDX-License-Identifier: Apache-2.0
 *
 * note.h: what gpushare-patch leaves in a file: the marker (what was done) and the undo note
 * (how to go back).
 *
 * Marker, the content of section .gpushare, at the end of the last PT_LOAD's file part:
 *     text     "key=value" lines: tool, scope, runtime, table; NUL-padded to a multiple of 8
 *     trailer  struct elf_marker_trailer
 * Undo note, the content of section .gpushare.undo, not loaded:
 *     head     struct elf_undo_head
 *     count ×  { u64 offset, u32 length, u32 flags, bytes padded to a multiple of 8 },
 * ascending, not overlapping All numbers are little-endian, as in the files that we patch.
 */
#ifndef REWRITER_NOTE_H
#define REWRITER_NOTE_H

#include "common/err.h"
#include "rewriter/checksum.h"
#include "rewriter/source.h"

#include <limits.h>
#include <stdint.h>

#define ELF_MARKER_SECTION ".gpushare"
#define ELF_UNDO_SECTION   ".gpushare.undo"
#define ELF_OLD_SECTION    ".gpushare.dynamic" /* keeps the bytes of a .dynamic that moved */
#define ELF_MARKER_MAGIC   "gpushare-marker"   /* 16 bytes with its NUL */
#define ELF_UNDO_MAGIC     "gpushare-undo-2"

#define ELF_UNDO_ZEROS     1u /* flag of an undo entry: the bytes were zeros and are not stored */
#define ELF_UNDO_ZEROS_MAX 65536 /* bytes of such an entry */

struct elf_marker_trailer {
    char magic[16];
    uint64_t text_size;   /* bytes of the text before this trailer */
    uint64_t undo_offset; /* in the file */
    uint64_t undo_size;   /* bytes */
};

struct elf_undo_head {
    char magic[16];
    uint64_t original_size; /* bytes */
    uint8_t original_checksum[ELF_CHECKSUM_SIZE];
    uint32_t count;
    uint32_t zero;
};

_Static_assert(sizeof(struct elf_marker_trailer) == 40, "format");
_Static_assert(sizeof(struct elf_undo_head) == 64, "format");

#define ELF_MARKER_TEXT_MAX (PATH_MAX + 512)

/* What a patched file says about itself. */
struct elf_note {
    char text[ELF_MARKER_TEXT_MAX]; /* of the marker */
    uint64_t original_size;
    uint8_t original_checksum[ELF_CHECKSUM_SIZE];
    struct elf_change *undo;
    size_t undo_count;
    uint8_t *undo_bytes; /* what undo points into */
    struct gs_err lost;  /* code != 0: the undo note is missing or damaged, and why */
};

enum elf_note_state { ELF_NOTE_NONE = 0, ELF_NOTE_FOUND = 1 };

/* Looks for marker and undo note in the file as it is (source without undo list). A marker
 * whose undo note is missing or damaged (strip and objcopy do that) is found, with `lost`
 * saying what is wrong. */
enum elf_note_state elf_note_find(struct elf_note *note, const struct elf_source *source);
void elf_note_deinit(struct elf_note *note);

/* Copies the value of a marker line ("runtime") into buffer; an empty string if it is not
 * there. */
void elf_note_value(const char *text, const char *key, char *buffer, size_t size);

/* The bytes of an undo note for these changes, whose `bytes` are the original ones (NULL:
 * zeros); checksum
 * zero. NULL: no memory. */
uint8_t *elf_undo_encode(uint64_t original_size, const struct elf_change *changes, size_t count,
                         uint64_t *size);

#endif

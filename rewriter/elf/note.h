/* SPDX-License-Identifier: Apache-2.0
 *
 * note.h: what gpushare-patch leaves in a file: the marker (what was done) and the undo note
 * (how to go back).
 *
 * Both are the content of section .gpushare, which ends the file part of a PT_LOAD, where strip
 * leaves them alone:
 *
 *     +----------------------------+
 *     | text                       |  the marker: lines "key=value"; NUL-padded to 8 bytes
 *     +----------------------------+  <- trailer.undo_offset
 *     | struct elf_undo_head       |
 *     +----------------------------+
 *     | struct elf_undo_copy       |  head.copies of them
 *     +----------------------------+
 *     | u64 offset                 |  head.count of them, ascending, not overlapping
 *     | u32 length, u32 flags      |
 *     | the original's bytes       |  padded to 8 bytes; none with ELF_UNDO_ZEROS
 *     +----------------------------+
 *     | struct elf_marker_trailer  |
 *     +----------------------------+  <- p_offset + p_filesz
 *
 * Keys of the marker: tool, scope, runtime, table, origin (of a copy of an interpreter only),
 * mtime (of the original: seconds, a point, nine digits). All numbers are little-endian, as in
 * the files that we patch.
 */
#pragma once

#include "rewriter/elf/image.h"
#include "rewriter/elf/sums.h"

#include <limits.h>

#define ELF_MARKER_SECTION ".gpushare"
#define ELF_OLD_STRINGS    ".gpushare.strings" /* keeps the bytes of a .dynstr that moved */
#define ELF_MARKER_MAGIC   "gpushare-marker"   /* 16 bytes with its NUL */
#define ELF_UNDO_MAGIC     "gpushare-undo-4"

#define ELF_UNDO_ZEROS     1u /* flag of an undo entry: the bytes were zeros and are not stored */
#define ELF_UNDO_ZEROS_MAX 65536 /* bytes of such an entry */

struct elf_marker_trailer {
    char magic[16];
    uint64_t text_size;   /* bytes of the text */
    uint64_t undo_offset; /* of the head, in the file as it was written */
    uint64_t undo_size;   /* bytes from the head to this trailer */
};

struct elf_undo_head {
    char magic[16];
    uint64_t original_size, patched_size; /* bytes */
    uint64_t image_end;                   /* see sums.h */
    uint8_t original_checksum[ELF_CHECKSUM_SIZE], image_checksum[ELF_CHECKSUM_SIZE];
    uint32_t count, copies;
};

/* A part that was moved into the marker's segment, and is stored there. Tools that lay the file
 * out anew (strip) may clear its old place, to which no section leads any more. */
struct elf_undo_copy {
    uint64_t offset, address; /* the old place */
    uint64_t at;              /* bytes from the start of the segment */
    uint64_t length;          /* bytes */
};

#define ELF_COPIES_MAX 2 /* the string table, always first; the block behind the headers */

_Static_assert(sizeof(struct elf_marker_trailer) == 40, "format");
_Static_assert(sizeof(struct elf_undo_head) == 112, "format");
_Static_assert(sizeof(struct elf_undo_copy) == 32, "format");

#define ELF_MARKER_TEXT_MAX (2 * PATH_MAX + 512)

/* Marker and undo note, as read from a patched file. */
struct elf_note {
    char text[ELF_MARKER_TEXT_MAX]; /* of the marker */
    struct elf_undo_head head;
    struct elf_undo_copy copies[ELF_COPIES_MAX]; /* head.copies */
    Elf64_Phdr segment;                          /* where it was found */
    bool relaid; /* the file was laid out anew since: undo's offsets are valid in the first
                    head.image_end bytes only */
    bool moved;  /* relaid, and the segment has moved: not only something cut off or appended */
    struct elf_change *undo;
    size_t undo_count;
    uint8_t *undo_bytes; /* the bytes that undo points into */
    struct gs_err lost;  /* code != 0: why the undo note is missing or damaged */
};

enum elf_note_state { ELF_NOTE_NONE = 0, ELF_NOTE_FOUND = 1 };

/* Looks for marker and undo note in the file as it is (source without undo list). A marker with
 * a missing or damaged undo note is found as well; then `lost` has the reason. */
enum elf_note_state elf_note_find(struct elf_note *note, const struct elf_source *source);

/* The original behind that file. The note is found, not lost, and outlives the result. */
struct elf_source elf_note_undone(const struct elf_note *note,
                                  const struct elf_source *patched);
void elf_note_deinit(struct elf_note *note);

/* Copies the value of a marker line ("runtime") into buffer; an empty string if it is not
 * there. */
void elf_note_value(const char *text, const char *key, char *buffer, size_t size);

/* Makes the bytes of an undo note for these changes, whose `bytes` are the original ones (NULL:
 * zeros). Uses the sizes, image_end and copies of head; the checksums are zero. NULL: no memory. */
uint8_t *elf_undo_encode(const struct elf_undo_head *head, const struct elf_undo_copy *copies,
                         const struct elf_change *changes, size_t count, uint64_t *size);

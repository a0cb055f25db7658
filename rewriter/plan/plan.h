/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: every byte that patching will change in a file, decided before anything is written.
 *
 * A plan is data: ranges of the original that get new bytes, and a tail behind the original's
 * end. The tail starts with the one new PT_LOAD (moved block, strings, marker with undo note)
 * and goes on with what is not loaded (section names, section headers).
 */
#pragma once

#include "rewriter/elf/facts.h"
#include "rewriter/elf/note.h"

enum elf_scope { ELF_SCOPE_AUTO, ELF_SCOPE_PROCESS, ELF_SCOPE_OBJECT };

/* How the new dynamic entry gets its place, best first. */
enum elf_dynamic_way {
    ELF_DYNAMIC_SPARE,    /* a spare DT_NULL */
    ELF_DYNAMIC_COUNT,    /* in place of DT_RELACOUNT, a hint that nothing depends on */
    ELF_DYNAMIC_NOW,      /* in place of a DT_BIND_NOW that DT_FLAGS repeats */
    ELF_DYNAMIC_VERSIONS, /* in place of DT_VERNEEDNUM: glibc walks the table to its end mark */
};

/* How the new program header gets its place, best first. */
enum elf_slot_way {
    ELF_SLOT_NULL,     /* a PT_NULL */
    ELF_SLOT_PROPERTY, /* in place of the PT_NOTE that duplicates PT_GNU_PROPERTY */
    ELF_SLOT_GROW,     /* the table grows, and the block behind it moves to the new segment */
    ELF_SLOT_NOTE,     /* in place of a PT_GNU_PROPERTY that a PT_NOTE duplicates (x86-64) */
    ELF_SLOT_END,      /* the table moves to the new segment */
    ELF_SLOT_PADDING,  /* none: the file does not grow; a segment grows over its padding */
};

/* An extent of the file, and where it is loaded. */
struct elf_extent {
    uint64_t offset, address, size;
};

/* The request. */
struct elf_wish {
    const char *runtime; /* absolute path that becomes DT_NEEDED */
    const char *marker;  /* text of the marker */
    const char *origin;  /* replaces $ORIGIN; NULL: it stays */
};

/* block.c: in the order of writing: later changes win; bytes are owned */
struct elf_plan_changes {
    struct elf_change *list;
    size_t count, room;
};

/* plan.c: the names that go behind the old strings */
struct elf_plan_names {
    char *bytes;
    size_t size;
    uint64_t needed; /* of the runtime library, offset in the new string table */
};

/* slot.c: the new dynamic table, DT_NULL included */
struct elf_plan_dynamic {
    enum elf_dynamic_way way;
    Elf64_Dyn *entries;
    size_t count;
};

/* slot.c: the new program headers */
struct elf_plan_slot {
    enum elf_slot_way way;
    Elf64_Phdr *segments;
    size_t count;
    size_t added; /* index of the new segment; ELF_SLOT_PADDING: of the segment that grows */
};

/* tail.c: where everything new lies behind the old file, and its bytes */
struct elf_plan_tail {
    struct elf_extent segment; /* the new segment, with the following in it: */
    struct elf_extent table, block, strings, marker; /* a size of 0: not there */
    uint64_t undo_at, undo_size;                     /* the undo note, in marker */
    uint64_t names_at, names_size, sections_at;      /* behind the segment; not loaded */
    uint64_t end;                                    /* size of the new file */
    uint8_t *bytes;                                  /* from segment.offset to end */
};

/* plan_padding() fills the parts instead when the file must not grow. */
struct elf_plan {
    const struct elf_image *image;
    const struct elf_facts *facts;
    const char *origin; /* of the wish */
    char marker[ELF_MARKER_TEXT_MAX];
    struct elf_plan_changes changes;
    struct elf_plan_names names;
    struct elf_plan_dynamic dynamic;
    struct elf_plan_slot slot;
    Elf64_Shdr *sections; /* tail.c: the new table; NULL when the file has none */
    size_t section_count;
    struct elf_extent
        block;       /* block.c: what moves for ELF_SLOT_GROW, where it was; size 0: none */
    bool init_moves; /* .init is in the block, so the new segment is executable */
    struct elf_plan_tail tail;
};

/* Decides everything. Uses image, facts and the wish's origin until elf_plan_deinit(). 0;
 * -ENOEXEC when this file cannot be changed safely (err says why); -ENOMEM. */
int elf_plan_make(struct elf_plan *plan, const struct elf_image *image,
                  const struct elf_facts *facts, const struct elf_wish *wish,
                  struct gs_err *err);
void elf_plan_deinit(struct elf_plan *plan);

const char *elf_dynamic_way_text(enum elf_dynamic_way way);
const char *elf_slot_way_text(enum elf_slot_way way);

/* Whether a name of the dynamic section contains $ORIGIN. */
bool elf_origin_is_used(const struct elf_image *image);
/* The name with origin in place of each $ORIGIN, to be freed by the caller. NULL: no memory. */
char *elf_origin_expand(const char *text, const char *origin);

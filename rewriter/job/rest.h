/* SPDX-License-Identifier: Apache-2.0
 *
 * rest.h: the part of a file behind its loaded part, for a file that was laid out anew (relaid.h).
 */
#ifndef REWRITER_JOB_REST_H
#define REWRITER_JOB_REST_H

#include "rewriter/elf/image.h"
#include "rewriter/elf/note.h"

/* The part of the new file behind the loaded part. */
struct elf_rest {
    const struct elf_image *now; /* the file as it is */
    const struct elf_note *note;
    Elf64_Shdr *sections; /* count; places in the new file */
    uint32_t *map;        /* old section number -> new section number; now->section_count */
    uint32_t *from;       /* new section number -> old section number; count */
    size_t count;
    char *names; /* section names without ours */
    size_t names_size;
    uint64_t end; /* of the section contents, offset in the new file */
};

/* Decides where everything goes. The image must have sections. rest must be deinited even after
 * an error. 0 or a negative errno. */
int elf_rest_plan(struct elf_rest *rest, const struct elf_image *now,
                  const struct elf_note *note, struct gs_err *err);
void elf_rest_deinit(struct elf_rest *rest);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * relaid.h: removes the patch from a file that was laid out anew after it was patched, as strip
 * and objcopy do.
 *
 * The complete original cannot come back, since strip has removed parts of it. The result is the
 * file that strip would have made of the original: first the loaded part (everything up to the
 * end of the last loadable segment), bit for bit, which its checksum in the undo note proves;
 * then the remaining sections.
 */
#pragma once

#include "rewriter/job/job.h"
#include "rewriter/output/output.h"

/* The part of the new file behind the loaded part: section headers and names without those of
 * gpushare-patch's sections. Section contents that are not loaded follow the loaded part in their
 * present order. */
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

/* Decides where everything goes. The image must have sections. rest must be deinited even after an
 * error. 0 or a negative errno. Also for tests. */
int elf_rest_plan(struct elf_rest *rest, const struct elf_image *now,
                  const struct elf_note *note, struct gs_err *err);
void elf_rest_deinit(struct elf_rest *rest);

/* Writes the new file. 0; -ENOEXEC if the loaded part cannot be proved to be the original's, or
 * the sections do not fit together; or the error of reading and writing. */
int elf_relaid_write(struct elf_job *job, struct elf_output *output, struct gs_err *err);

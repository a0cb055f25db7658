/* SPDX-License-Identifier: Apache-2.0
 *
 * attributes.h: everything besides its bytes that the new file takes over from the old file.
 */
#ifndef REWRITER_OUTPUT_ATTRIBUTES_H
#define REWRITER_OUTPUT_ATTRIBUTES_H

#include "rewriter/output/output.h"

/* Gives the new file mode and extended attributes (access lists, capabilities) of from. If whole
 * is set, it gets its owner as well, else none of the rights that belong to an owner (setuid,
 * capabilities). An owner who is not in the file's group cannot give it away again: then group_lost
 * is set, and the new group may do what all may, unless rights of the group itself are at stake.
 * `changed` is the time of its last change; NULL: now. */
int elf_output_attributes(struct elf_output *output, int from, bool whole,
                          const struct timespec *changed, struct gs_err *err);

#endif

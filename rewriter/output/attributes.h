/* SPDX-License-Identifier: Apache-2.0
 *
 * attributes.h: what the new file takes over from the old one besides its bytes.
 */
#ifndef REWRITER_OUTPUT_ATTRIBUTES_H
#define REWRITER_OUTPUT_ATTRIBUTES_H

#include "rewriter/output/output.h"

/* Gives the new file mode and extended attributes (access lists, capabilities) of from; its
 * owner as well if whole is set, else without the rights that go with an owner (setuid,
 * capabilities). `changed` is the time of its last change; NULL: now. */
int elf_output_attributes(struct elf_output *output, int from, bool whole,
                          const struct timespec *changed, struct gs_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * say.h: prints text for people that holds names which somebody else has chosen.
 */
#ifndef REWRITER_ELF_SAY_H
#define REWRITER_ELF_SAY_H

#include <stdio.h>

/* As fprintf; but a control character is written as ?, so that no name of a file or library
 * moves the cursor of a terminal or looks like two lines. A newline stays at the very end only.
 */
__attribute__((format(printf, 2, 3))) void elf_say(FILE *to, const char *format, ...);

/* The same for a text, in place; here no newline stays. */
void elf_say_clean(char *text);

#endif

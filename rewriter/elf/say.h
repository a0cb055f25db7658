/* SPDX-License-Identifier: Apache-2.0
 *
 * say.h: prints text that contains names from outside.
 */
#pragma once

#include <stdio.h>

/* As fprintf, but writes each control character as ?, so that no name of a file or library can
 * move a terminal's cursor or look like two lines. Only a newline at the very end stays. */
__attribute__((format(printf, 2, 3))) void elf_say(FILE *to, const char *format, ...);

/* The same for a text, in place; here no newline stays. */
void elf_say_clean(char *text);

/* Writes text as a JSON string with quotes; bytes that are no UTF-8 as U+FFFD. */
void elf_say_json(FILE *to, const char *text);

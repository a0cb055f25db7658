/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h: makes bytes of unknown origin a text that may be shown: on a terminal, in a log, in JSON.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Ends the text within its `size` bytes and makes it valid UTF-8 without control characters:
 * every byte of a control character or of an invalid sequence becomes '?'. */
void lockd_text_clean(char *text, size_t size);
/* A clean text cut or padded to so many columns of a terminal (setlocale() was called). size:
 * of buffer, bytes. Returns buffer. */
const char *lockd_text_fit(const char *text, size_t columns, char *buffer, size_t size);
/* The same; a text that is longer ends with a mark. */
const char *lockd_text_cut(const char *text, size_t columns, char *buffer, size_t size);
/* The columns that a text takes on a terminal. */
size_t lockd_text_width(const char *text);
/* Whether a typed word is a single slip away from the name: a letter too many, missing or wrong,
 * or two exchanged. */
bool lockd_text_is_similar(const char *word, const char *name);

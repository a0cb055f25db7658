/* SPDX-License-Identifier: Apache-2.0
 *
 * words.h: the words and numbers of gpusharectl's output.
 */
#ifndef GS_LOCKD_CTL_WORDS_H
#define GS_LOCKD_CTL_WORDS_H

#include "lockd/ctl/ctl.h"
#include "lockd/protocol/figures.h"

/* The words that status, top and the page use, each explained in a line of at most 78 columns. Ends
 * with a NULL word. */
struct ctl_word {
    const char *word, *meaning;
};
extern const struct ctl_word ctl_words[];

const char *ctl_condition_name(uint32_t condition);
const char *ctl_note_kind(uint32_t kind);
const char *ctl_policy_name(uint32_t policy);
/* "1.5 s", "3 min" */
const char *ctl_duration(uint64_t ns, char *buffer, size_t size);
/* A figure as status shows it: "7.0 GiB", "1.5 s", "12". */
const char *ctl_figure_text(const struct lockd_figure *figure, uint64_t value, char *buffer,
                            size_t size);

/* "17 %", or "-" for CTL_BUSY_UNKNOWN. */
const char *ctl_percent(int percent, char *buffer, size_t size);
/* The share of its time since it connected in which the program was allowed to run, per cent;
 * CTL_BUSY_UNKNOWN: it has only just connected. */
int ctl_allowed_percent(const struct gs_wire_client *client);

#endif

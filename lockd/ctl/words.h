/* SPDX-License-Identifier: Apache-2.0
 *
 * words.h: the words and numbers of gpusharectl's output.
 */
#pragma once

#include "lockd/ctl/ctl.h"
#include "lockd/protocol/figures.h"

/* The words that status, top and the page use, each explained in a line of at most 78
 * columns. Ends with a NULL word. */
struct ctl_word {
    const char *word, *meaning;
};
extern const struct ctl_word ctl_words[];

const char *ctl_condition_name(uint32_t condition);
/* How the programs of the device share it: "leases". */
const char *ctl_mode_name(const struct gs_wire_device *device);
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

/* The name of a user, or the number of one without a name. */
const char *ctl_user_name(uint32_t uid, char *buffer, size_t size);
#define CTL_CONTAINER_SIZE 80
/* The container of a program; an id is shortened to 12 digits, as docker ps shows it. "":
 * none. */
const char *ctl_container_text(const struct gs_wire_client *client, char *buffer);
/* Reads the names of the programs' pods from kubelet's folders: fills in
 * answer->client_pods. */
void ctl_pods_look(struct ctl_answer *answer);
/* The pod of the program at that index. */
const struct ctl_pod *ctl_client_pod(const struct ctl_answer *answer, size_t index);

#define CTL_WHY_SIZE 192
/* "waits for train (pid 812): its turn ends in 6.2 s at the latest; it has used about 61 %
 * of the last minute". "": the program does not wait. */
const char *ctl_why_text(const struct ctl_answer *answer, const struct gs_wire_client *client,
                         char buffer[CTL_WHY_SIZE]);

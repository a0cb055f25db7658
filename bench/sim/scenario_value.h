/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario_value.h: how the values of a scenario file are written.
 */
#pragma once

#include "bench/sim/scenario.h"

enum sim_key_kind {
    SIM_TIME,
    SIM_SPREAD,
    SIM_SIZE,
    SIM_RATE,
    SIM_COUNT,
    SIM_INTEGER,
    SIM_PART,
    SIM_CHOICE,
    SIM_WORD,
    SIM_POLICY
};

struct sim_key {
    const char *section, *name;
    enum sim_key_kind kind;
    size_t offset;
    double low, high;
    bool or_auto; /* "auto" is LOCKD_AUTO */
    const char *help;
};

/* Reads text into base + key->offset. 0, or -EINVAL with a text that says what is allowed. */
int sim_value_set(const struct sim_key *key, void *base, const char *text, struct gs_err *err);

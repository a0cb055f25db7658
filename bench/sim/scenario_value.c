/* SPDX-License-Identifier: Apache-2.0
 *
 * scenario_value.c: reads one value of a scenario file as its key says. No state.
 */
#include "bench/sim/scenario_value.h"
#include "common/size.h"
#include "lockd/sched/scheduler.h"
#include "lockd/protocol/wire_check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const ways[] = {"gpushare", "unified", "unlocked", NULL};

static int refuse_value(struct gs_err *err, const struct sim_key *key, const char *text,
                        const char *why)
{
    return gs_err_set(err, -EINVAL, "[%s] %s = %s: %s", key->section, key->name, text, why);
}

/* A number of seconds with its unit: 5s, 20 ms, 1.5h; the text behind it in *end. */
static int read_time(const char *text, const char **end, double *seconds)
{
    static const struct {
        const char *unit;
        double seconds;
    } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1},
                 {"min", 60},  {"h", 3600},  {"d", 86400}};
    char *behind;
    size_t length;

    *seconds = strtod(text, &behind);
    if (behind == text || !isfinite(*seconds))
        return -EINVAL;
    behind += strspn(behind, " ");
    length = strcspn(behind, " ");
    *end = behind + length;
    if (length == 0 && *seconds == 0)
        return 0;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strlen(units[i].unit) == length && memcmp(units[i].unit, behind, length) == 0) {
            *seconds *= units[i].seconds;
            return 0;
        }
    }
    return -EINVAL;
}

static int set_time(const struct sim_key *key, void *at, const char *text, struct gs_err *err)
{
    const char *end;
    double seconds;

    if (read_time(text, &end, &seconds) != 0 || *end != '\0')
        return refuse_value(
            err, key, text,
            "not a time; write it as 5s, 20ms or 1.5h (units: ns us ms s min h d)");
    if (seconds < key->low || seconds > key->high)
        return refuse_value(err, key, text, "out of range");
    *(uint64_t *)at = (uint64_t)(seconds * 1e9);
    return 0;
}

static const struct {
    const char *word;
    enum sim_spread_kind kind;
    unsigned least, most; /* times */
} spreads[] = {{"", SIM_FIXED, 1, 1},
               {"exp ", SIM_EXPONENTIAL, 1, 1},
               {"uniform ", SIM_UNIFORM, 2, 2},
               {"turn ", SIM_TURN, 2, SIM_TURNS}};

static int set_spread(const struct sim_key *key, void *at, const char *text, struct gs_err *err)
{
    static const char why[] = "write 50ms, exp 50ms (mean), uniform 10ms 90ms, turn 50ms 2s 2s "
                              "(at most 8, one after the other)";
    struct sim_spread spread = {.kind = SIM_FIXED};
    double seconds[SIM_TURNS] = {0}, sum = 0;
    const char *next = text;
    size_t like = 0;

    for (size_t i = 1; i < sizeof spreads / sizeof spreads[0]; i++)
        if (strncmp(text, spreads[i].word, strlen(spreads[i].word)) == 0)
            like = i;
    spread.kind = spreads[like].kind;
    next += strlen(spreads[like].word);
    while (spread.turn_count < spreads[like].most && *next != '\0') {
        double *time = &seconds[spread.turn_count];

        if (read_time(next, &next, time) != 0)
            return refuse_value(err, key, text, why);
        if (*time < key->low || *time > key->high)
            return refuse_value(err, key, text, "out of range");
        sum += *time;
        spread.turns[spread.turn_count++] = *time * 1e9;
    }
    if (*next != '\0' || spread.turn_count < spreads[like].least ||
        (spread.kind == SIM_UNIFORM && seconds[1] < seconds[0]))
        return refuse_value(err, key, text, why);
    spread.a =
        spread.kind == SIM_TURN ? sum / (double)spread.turn_count * 1e9 : spread.turns[0];
    spread.b = spread.turns[1];
    *(struct sim_spread *)at = spread;
    return 0;
}

static int set_size(const struct sim_key *key, void *at, const char *text, struct gs_err *err)
{
    uint64_t bytes;

    if (gs_size_parse(text, &bytes) != 0)
        return refuse_value(err, key, text, "not a size; write it as 15.5GiB or 12GB");
    if ((double)bytes < key->low || (double)bytes > key->high)
        return refuse_value(err, key, text, "out of range");
    *(uint64_t *)at = bytes;
    return 0;
}

static int set_number(const struct sim_key *key, void *at, const char *text, struct gs_err *err)
{
    char *end;
    const double number = strtod(text, &end);

    if (end == text || *end != '\0' || !isfinite(number))
        return refuse_value(err, key, text, "not a number");
    if (number < key->low || number > key->high)
        return refuse_value(err, key, text, "out of range");
    if (key->kind == SIM_PART)
        *(double *)at = number;
    else if (number != floor(number))
        return refuse_value(err, key, text, "no whole number");
    else if (key->kind == SIM_INTEGER)
        *(int64_t *)at = (int64_t)number;
    else
        *(uint64_t *)at = (uint64_t)number;
    return 0;
}

static int set_word(const struct sim_key *key, void *at, const char *text, struct gs_err *err)
{
    const size_t length = strlen(text);

    if (length > 31)
        return refuse_value(err, key, text, "longer than 31 characters");
    memcpy(at, text, length + 1);
    return 0;
}

static int set_choice(const struct sim_key *key, void *at, const char *text, struct gs_err *err)
{
    for (uint32_t i = 0; key->kind == SIM_POLICY && lockd_policy_name(i) != NULL; i++) {
        if (strcmp(lockd_policy_name(i), text) == 0) {
            *(uint64_t *)at = i;
            return 0;
        }
    }
    for (uint64_t i = 0; key->kind == SIM_CHOICE && ways[i] != NULL; i++) {
        if (strcmp(ways[i], text) == 0) {
            *(uint64_t *)at = i;
            return 0;
        }
    }
    return refuse_value(err, key, text, key->help);
}

int sim_value_set(const struct sim_key *key, void *base, const char *text, struct gs_err *err)
{
    void *at = (char *)base + key->offset;

    if (key->or_auto && strcmp(text, "auto") == 0) {
        *(uint64_t *)at = LOCKD_AUTO;
        return 0;
    }
    switch (key->kind) {
    case SIM_TIME:
        return set_time(key, at, text, err);
    case SIM_SPREAD:
        return set_spread(key, at, text, err);
    case SIM_SIZE:
    case SIM_RATE:
        return set_size(key, at, text, err);
    case SIM_CHOICE:
    case SIM_POLICY:
        return set_choice(key, at, text, err);
    case SIM_WORD:
        return set_word(key, at, text, err);
    default:
        return set_number(key, at, text, err);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c: owns the reading of the card's properties from the environment (README.md).
 * Invariants: what it accepts, a card can have. Threads: any, as far as getenv() goes.
 */
#include <errno.h>
#include <stdlib.h>
#include "common/size.h"
#include "tests/simcuda/ledger.h"

#define MIB (1024ull * 1024u)

/* One numeric variable: sizes where size is true. *set notes that the environment says anything
 * at all. */
static int read_number(const char *name, bool size, uint64_t *value, bool *set,
                       struct gs_err *err)
{
    const char *text = getenv(name);
    char *end = NULL;

    if (!text || !*text)
        return 0;
    *set = true;
    if (size)
        return gs_size_parse(text, value) == 0
                   ? 0
                   : gs_err_set(err, -EINVAL, "%s=%s is no size; write it as 1GiB", name, text);
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end || text[0] == '-')
        return gs_err_set(err, -EINVAL, "%s=%s is no number", name, text);
    *value = number;
    return 0;
}

static int read_rate(const char *name, uint64_t *rate, bool *set, struct gs_err *err)
{
    const char *text = getenv(name);
    char *end = NULL;

    if (!text || !*text)
        return 0;
    *set = true;
    const double gigabytes = strtod(text, &end);
    if (end == text || *end || !(gigabytes >= 0 && gigabytes <= 1e6))
        return gs_err_set(err, -EINVAL, "%s=%s is no rate; write GB per second, as 12.5", name,
                          text);
    *rate = (uint64_t)(gigabytes * 1e9);
    return 0;
}

int sim_properties_read(struct sim_properties *properties, bool *set, struct gs_err *err)
{
    uint64_t cards = properties->cards, version = properties->driver_version;
    uint64_t timeslice = properties->timeslice;
    int rc = read_number("SIMCUDA_MEMORY", true, &properties->memory, set, err);

    rc =
        rc ? rc
           : read_number("SIMCUDA_CONTEXT_MEMORY", true, &properties->context_memory, set, err);
    rc = rc ? rc : read_rate("SIMCUDA_PCIE_GBPS", &properties->pcie_rate, set, err);
    rc = rc ? rc : read_rate("SIMCUDA_FAULT_GBPS", &properties->fault_rate, set, err);
    rc = rc ? rc : read_rate("SIMCUDA_HOST_GBPS", &properties->host_rate, set, err);
    rc = rc ? rc : read_rate("SIMCUDA_CARD_GBPS", &properties->card_rate, set, err);
    rc = rc ? rc : read_number("SIMCUDA_KERNEL_NS", false, &properties->kernel_ns, set, err);
    rc = rc ? rc : read_number("SIMCUDA_LAUNCH_NS", false, &properties->launch_ns, set, err);
    rc = rc ? rc : read_number("SIMCUDA_TIMESLICE", false, &timeslice, set, err);
    rc = rc ? rc : read_number("SIMCUDA_DRIVER_VERSION", false, &version, set, err);
    rc = rc ? rc : read_number("SIMCUDA_DEVICES", false, &cards, set, err);
    if (rc)
        return rc;
    if (cards < 1 || cards > SIM_CARDS_MAX)
        return gs_err_set(err, -EINVAL, "SIMCUDA_DEVICES=%llu: 1 to %d cards can be simulated",
                          (unsigned long long)cards, SIM_CARDS_MAX);
    if (properties->memory < 4 * MIB || properties->memory > MIB * MIB)
        return gs_err_set(err, -EINVAL, "SIMCUDA_MEMORY: a card has 4 MiB to 1 TiB");
    if (version < 2000 || version > 99990)
        return gs_err_set(err, -EINVAL, "SIMCUDA_DRIVER_VERSION is written as 13000 for 13.0");
    properties->cards = (uint32_t)cards;
    properties->driver_version = (uint32_t)version;
    properties->timeslice = timeslice != 0;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.c: compares a program's figures with those of an earlier answer. No state.
 */
#include "lockd/rates.h"

#include <string.h>

static const struct gs_wire_client *find(const struct ctl_answer *answer,
                                         const struct gs_wire_client *client)
{
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *each = &answer->clients[i];

        if (each->pid == client->pid && each->uid == client->uid &&
            memcmp(each->uuid, client->uuid, sizeof each->uuid) == 0 &&
            strcmp(each->name, client->name) == 0)
            return each;
    }
    return NULL;
}

struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct gs_wire_client *now,
                            uint64_t elapsed_ns)
{
    const struct gs_wire_client *then = find(before, now);
    const double seconds = (double)elapsed_ns / 1e9;
    struct ctl_rate rate = {0};

    if (then == NULL || elapsed_ns == 0 || now->moved_out < then->moved_out ||
        now->moved_in < then->moved_in || now->gpu_ns < then->gpu_ns ||
        now->calls < then->calls || now->turns < then->turns)
        return rate;
    rate.out = (double)(now->moved_out - then->moved_out) / seconds;
    rate.in = (double)(now->moved_in - then->moved_in) / seconds;
    rate.gpu = (double)(now->gpu_ns - then->gpu_ns) / (double)elapsed_ns;
    rate.gpu = rate.gpu > 1 ? 1 : rate.gpu;
    rate.calls = (double)(now->calls - then->calls) / seconds;
    rate.turns = now->turns - then->turns;
    return rate;
}

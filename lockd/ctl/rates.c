/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.c: compares a program's figures with those of an earlier answer. No state.
 */
#include "lockd/ctl/rates.h"

#include <string.h>

static bool look_alike(const struct gs_wire_client *one, const struct gs_wire_client *other)
{
    return one->pid == other->pid && one->uid == other->uid &&
           memcmp(one->uuid, other->uuid, sizeof one->uuid) == 0 &&
           strcmp(one->name, other->name) == 0;
}

unsigned ctl_twin(const struct ctl_answer *answer, size_t index)
{
    unsigned count = 0;

    for (size_t i = 0; i < index; i++)
        count += look_alike(&answer->clients[i], &answer->clients[index]);
    return count;
}

static const struct gs_wire_client *find_program(const struct ctl_answer *answer,
                                                 const struct gs_wire_client *client,
                                                 unsigned twin)
{
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *each = &answer->clients[i];

        if (look_alike(each, client) && twin-- == 0)
            return each;
    }
    return NULL;
}

struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct ctl_answer *answer,
                            size_t index, uint64_t elapsed_ns)
{
    const struct gs_wire_client *now = &answer->clients[index];
    const struct gs_wire_client *then = find_program(before, now, ctl_twin(answer, index));
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

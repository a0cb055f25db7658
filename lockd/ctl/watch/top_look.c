/* SPDX-License-Identifier: Apache-2.0
 *
 * top_look.c: keeps the last two answers of the daemon, and for each device a history of samples.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/gpus.h"
#include "lockd/ctl/watch/top_look.h"
#include "lockd/ctl/words.h"

#include <stdlib.h>
#include <string.h>

static struct top_history *find_history(struct top *top, const uint8_t *uuid)
{
    struct top_history *history;

    for (size_t i = 0; i < top->history_count; i++) {
        if (memcmp(top->history[i].uuid, uuid, sizeof top->history[i].uuid) == 0)
            return &top->history[i];
    }
    if (top->history_count == TOP_DEVICES)
        return NULL;
    history = &top->history[top->history_count++];
    memcpy(history->uuid, uuid, sizeof history->uuid);
    return history;
}

const struct top_history *top_look_history(const struct top *top, const uint8_t *uuid)
{
    for (size_t i = 0; i < top->history_count; i++) {
        if (memcmp(top->history[i].uuid, uuid, sizeof top->history[i].uuid) == 0)
            return &top->history[i];
    }
    return NULL;
}

static void add_sample(struct top *top, size_t index)
{
    const struct gs_wire_device *device = &top->now.devices[index];
    struct top_history *history = find_history(top, device->uuid);
    struct top_sample sample = {.busy = ctl_device_busy(&top->now, index)};
    double allowed = 0;

    if (history == NULL)
        return;
    for (size_t i = 0; i < top->now.client_count; i++) {
        const struct gs_wire_client *client = &top->now.clients[i];
        struct ctl_rate rate;

        if (client->condition == GS_CONDITION_NO_DEVICE ||
            memcmp(client->uuid, device->uuid, sizeof device->uuid) != 0)
            continue;
        rate = ctl_rate_of(&top->before, &top->now, i, top->elapsed);
        sample.moved += rate.out + rate.in;
        allowed += rate.gpu;
    }
    sample.allowed = allowed > 1 ? 100 : (int)(allowed * 100 + 0.5);
    history->samples[history->count++ % TOP_SAMPLES] = sample;
}

int top_look_take(struct top *top)
{
    struct ctl_answer answer;
    const uint64_t now = ctl_now();
    int code;

    top->ctl->err = (struct gs_err){0};
    code = ctl_ask_status(top->ctl, &answer);
    if (code != 0)
        return code;
    ctl_gpus_look(top->nvml, &answer);
    ctl_pods_look(&answer);
    ctl_answer_deinit(&top->before);
    top->before = top->now;
    top->now = answer;
    top->line_count = 0; /* their indices belong to the answer before */
    top->elapsed = top->at != 0 ? now - top->at : 0;
    top->at = now;
    for (size_t i = 0; top->elapsed != 0 && i < answer.device_count; i++)
        add_sample(top, i);
    return 0;
}

void top_look_deinit(struct top *top)
{
    ctl_answer_deinit(&top->now);
    ctl_answer_deinit(&top->before);
    ctl_table_clear(&top->table);
    free(top->lines);
    top->lines = NULL;
    top->line_count = 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * load.c: one question, as `gpusharectl status` asks it.
 */
#include "cluster/load.h"
#include "lockd/ctl/ask.h"

#include <string.h>

#include "lockd/ctl/ctl.h"

static unsigned count_tenths(const struct gs_wire_device *device)
{
    const uint64_t wanted = device->demand + device->pinned;
    const uint64_t tenth = device->capacity / 10;

    if (tenth == 0)
        return wanted != 0 ? 10000 : 0;
    return wanted / tenth < 10000 ? (unsigned)(wanted / tenth) : 10000;
}

void load_ask(struct load *load, const struct cards *cards, const struct gs_places *places,
              struct gs_err *err)
{
    struct ctl ctl = {.places = *places, .patience_s = 1};
    struct ctl_answer answer;

    *load = (struct load){0};
    memcpy(ctl.path, places->path[0], sizeof ctl.path);
    if (ctl_ask_status(&ctl, &answer) != 0) {
        gs_err_set(err, ctl.err.code, "%s", ctl.err.text);
        return;
    }
    for (size_t i = 0; i < answer.device_count; i++) {
        for (unsigned card = 0; card < cards->count; card++) {
            const struct gs_wire_device *device = &answer.devices[i];

            if (cards->card[card].has_uuid &&
                memcmp(cards->card[card].uuid, device->uuid, sizeof device->uuid) == 0)
                load->tenths[card] = count_tenths(device);
        }
    }
    ctl_answer_deinit(&answer);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_timeline.c: libFuzzer target: any events, as a daemon (of whatever kind) may send them
 * to gpusharectl trace. What is written must be JSON.
 */
#include "lockd/ctl/ctl.h"
#include "lockd/ctl/watch/timeline.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require_true(int condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const size_t body = sizeof(struct gs_wire_event) - sizeof(struct gs_wire_header);
    struct ctl_timeline timeline;
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    json_t *root;

    require_true(out != NULL);
    ctl_timeline_init(&timeline, out);
    for (; size >= body; data += body, size -= body) {
        union lockd_message message = {0};
        struct gs_err err = {0};

        memcpy((char *)&message + sizeof message.header, data, body);
        lockd_wire_header(&message.header, GS_WIRE_EVENT);
        require_true(lockd_wire_check(&message, sizeof message.event, &err) == 0);
        message.event.program &= 3; /* else no track is ever met again */
        require_true(ctl_timeline_add(&timeline, &message.event) == 0);
    }
    require_true(ctl_timeline_finish(&timeline, timeline.last_ns) == 0);
    ctl_timeline_deinit(&timeline);
    require_true(fclose(out) == 0);
    root = json_loadb(text, length, 0, NULL);
    require_true(root != NULL);
    json_decref(root);
    free(text);
    return 0;
}

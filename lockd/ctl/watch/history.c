/* SPDX-License-Identifier: Apache-2.0
 *
 * history.c: owns a ring of samples, one per second, each with the state and memory of all
 * programs. One thread.
 */
#include "lockd/ctl/json.h"
#include "lockd/ctl/watch/history.h"
#include "lockd/ctl/words.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

struct sample_program {
    int32_t pid;
    uint32_t condition;
    uint8_t uuid[16];
    uint64_t resident, on_host;
    char name[sizeof((struct gs_wire_client *)0)->name];
};

struct sample {
    int64_t time;
    size_t count;
    struct sample_program *programs;
};

struct history {
    size_t next; /* the place of the next sample */
    struct sample samples[HISTORY_SAMPLES];
};

struct history *history_new(void)
{
    return calloc(1, sizeof(struct history));
}

void history_free(struct history *history)
{
    if (history == NULL)
        return;
    for (size_t i = 0; i < HISTORY_SAMPLES; i++)
        free(history->samples[i].programs);
    free(history);
}

void history_add(struct history *history, int64_t time, const struct ctl_answer *answer)
{
    struct sample *sample = &history->samples[history->next];
    const size_t most =
        answer->client_count < HISTORY_PROGRAMS ? answer->client_count : HISTORY_PROGRAMS;

    free(sample->programs);
    *sample =
        (struct sample){.time = time, .programs = calloc(most + 1, sizeof *sample->programs)};
    history->next = (history->next + 1) % HISTORY_SAMPLES;
    for (size_t i = 0; sample->programs != NULL && i < most; i++) {
        const struct gs_wire_client *client = &answer->clients[i];
        struct sample_program *program = &sample->programs[sample->count];

        if (client->condition == GS_CONDITION_NO_DEVICE)
            continue;
        *program = (struct sample_program){.pid = client->pid,
                                           .condition = client->condition,
                                           .resident = client->resident,
                                           .on_host = client->on_host};
        memcpy(program->uuid, client->uuid, sizeof program->uuid);
        memcpy(program->name, client->name, sizeof program->name);
        sample->count++;
    }
}

static json_t *sample_json(const struct sample *sample)
{
    json_t *programs = json_array();

    for (size_t i = 0; i < sample->count; i++) {
        const struct sample_program *program = &sample->programs[i];
        char uuid[LOCKD_UUID_SIZE];

        json_array_append_new(programs,
                              json_pack("{s:i, s:o, s:s, s:s, s:I, s:I}", "pid", program->pid,
                                        "name", ctl_json_text(program->name), "device",
                                        lockd_uuid_text(program->uuid, uuid), "state",
                                        ctl_condition_name(program->condition), "resident",
                                        (json_int_t)program->resident, "on_host",
                                        (json_int_t)program->on_host));
    }
    return json_pack("{s:I, s:o}", "time", (json_int_t)sample->time, "programs", programs);
}

json_t *history_json(const struct history *history)
{
    json_t *array = json_array();

    for (size_t i = 0; i < HISTORY_SAMPLES; i++) {
        const struct sample *sample = &history->samples[(history->next + i) % HISTORY_SAMPLES];

        if (sample->programs != NULL)
            json_array_append_new(array, sample_json(sample));
    }
    return array;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * why.c: for which program a program waits, why, and for how long at most, as a sentence. No state.
 */
#include "lockd/ctl/why.h"

#include "lockd/ctl/words.h"

#include <stdio.h>
#include <string.h>

/* The program for which `client` waits, on the same device; NULL: none, or it has gone. */
static const struct gs_wire_client *find_other(const struct ctl_answer *answer,
                                               const struct gs_wire_client *client)
{
    for (size_t i = 0; client->waits_for != 0 && i < answer->client_count; i++) {
        const struct gs_wire_client *other = &answer->clients[i];

        if ((uint64_t)other->pid == client->waits_for &&
            memcmp(other->uuid, client->uuid, sizeof other->uuid) == 0)
            return other;
    }
    return NULL;
}

static const char *reason_of(uint64_t why)
{
    switch (why) {
    case GS_WHY_GOES_FIRST:
        return "its bursts are short, so it is served first; ";
    case GS_WHY_FLOOR:
        return "the others are to have their floor first; ";
    default:
        return "";
    }
}

static void write_about(const struct gs_wire_client *client, const struct gs_wire_client *other,
                        char *buffer, size_t size)
{
    char most[24], place[48] = "";

    if (client->waits_why == GS_WHY_QUEUE && client->queue_place > 1)
        snprintf(place, sizeof place, "%llu %s before it; ",
                 (unsigned long long)client->queue_place - 1,
                 client->queue_place == 2 ? "program comes" : "programs come");
    if (client->waits_why == GS_WHY_STOPS)
        snprintf(buffer, size, "waits for %s (pid %d): it was asked to stop", other->name,
                 other->pid);
    else if (client->waits_most_ns == UINT64_MAX)
        snprintf(buffer, size, "waits for %s (pid %d): %s%sits turn has just begun",
                 other->name, other->pid, place, reason_of(client->waits_why));
    else
        snprintf(buffer, size,
                 "waits for %s (pid %d): %s%sits turn ends in %s at the latest; it has used "
                 "about %.0f %% of the last minute",
                 other->name, other->pid, place, reason_of(client->waits_why),
                 ctl_duration(client->waits_most_ns, most, sizeof most),
                 (double)other->used_ppm / 1e4);
}

const char *ctl_why_text(const struct ctl_answer *answer, const struct gs_wire_client *client,
                         char buffer[CTL_WHY_SIZE])
{
    static const char *const alone[GS_WHY_COUNT] = {
        [GS_WHY_NONE] = "",
        [GS_WHY_QUEUE] = "waits for its turn",
        [GS_WHY_ELSEWHERE] = "waits for its turn on another GPU",
        [GS_WHY_FORMS] = "waits until another job has started",
        [GS_WHY_TOO_LARGE] =
            ("waits until no other program has work: it needs more memory than "
             "it can have beside them"),
        [GS_WHY_MEMORY] = "has its turn; its memory is on the way",
    };
    const struct gs_wire_client *other = find_other(answer, client);
    const char *text = client->waits_why < GS_WHY_COUNT ? alone[client->waits_why] : NULL;

    if (other != NULL && client->waits_why != GS_WHY_NONE)
        write_about(client, other, buffer, CTL_WHY_SIZE);
    else
        snprintf(buffer, CTL_WHY_SIZE, "%s", text != NULL ? text : alone[GS_WHY_QUEUE]);
    return buffer;
}

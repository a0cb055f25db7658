/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c: the words of gpusharectl's output: terms, users, pods, and for whom a program waits.
 */
#include "lockd/ctl/words.h"
#include "common/size.h"
#include "lockd/base/text.h"

#include <pwd.h>
#include <stdlib.h>
#include <string.h>

const struct ctl_word ctl_words[] = {
    {"open", "all programs fit and may run at the same time"},
    {"leases", "programs take turns, since they do not fit together"},
    {"exclusive", "programs take turns although they fit, as was set"},
    {"capacity", "memory of the GPU that gpushare programs can have together"},
    {"demand", "movable memory of programs, on the card or on the host"},
    {"resident", "movable memory that is on the card now"},
    {"on host", "movable memory that was moved to host memory"},
    {"pinned", "memory of a program on the card that cannot be moved"},
    {"external", "memory that gpushare cannot move: contexts, other processes"},
    {"quantum", "the length of a turn while others wait"},
    {"allowed", "share of the time in which the program might run"},
    {"busy", "share of the last second in which kernels ran (NVML)"},
    {"unprepared", "a process that uses the GPU without gpushare"},
    {"elsewhere", "a process with gpushare that uses another daemon or none"},
    {"hidden", "a process of another user: what it has loaded is not visible"},
    {NULL, NULL},
};

const char *ctl_condition_name(uint32_t condition)
{
    static const char *const names[] = {
        [GS_CONDITION_RUNS] = "runs",           [GS_CONDITION_WAITS] = "waits",
        [GS_CONDITION_IDLE] = "idle",           [GS_CONDITION_MOVING] = "moving",
        [GS_CONDITION_STOPPING] = "stopping",   [GS_CONDITION_STUCK] = "stuck",
        [GS_CONDITION_PAUSED] = "paused",       [GS_CONDITION_DOES_NOT_FIT] = "does not fit",
        [GS_CONDITION_NO_DEVICE] = "no device", [GS_CONDITION_STOPPED] = "stopped",
        [GS_CONDITION_TRACED] = "in debugger",  [GS_CONDITION_FROZEN] = "frozen",
    };

    return condition < sizeof names / sizeof names[0] ? names[condition] : "unknown";
}

const char *ctl_mode_name(const struct gs_wire_device *device)
{
    return device->exclusive != 0 ? "exclusive" : device->leases != 0 ? "leases" : "open";
}

const char *ctl_note_kind(uint32_t kind)
{
    return kind == GS_NOTE_UNROUTED ? "unrouted" : kind == GS_NOTE_NEWER ? "newer" : "other";
}

const char *ctl_policy_name(uint32_t policy)
{
    const char *name = lockd_policy_name(policy);

    return name != NULL ? name : "unknown";
}

const char *ctl_duration(uint64_t ns, char *buffer, size_t size)
{
    const double seconds = (double)ns / 1e9;

    if (seconds < 1)
        snprintf(buffer, size, "%.0f ms", seconds * 1e3);
    else if (seconds < 120)
        snprintf(buffer, size, "%.1f s", seconds);
    else if (seconds < 7200)
        snprintf(buffer, size, "%.0f min", seconds / 60);
    else
        snprintf(buffer, size, "%.1f h", seconds / 3600);
    return buffer;
}

const char *ctl_figure_text(const struct lockd_figure *figure, uint64_t value, char *buffer,
                            size_t size)
{
    switch (figure->unit) {
    case LOCKD_FIGURE_BYTES:
        return gs_size_format(value, buffer, size);
    case LOCKD_FIGURE_NS:
        return ctl_duration(value, buffer, size);
    default:
        snprintf(buffer, size, "%llu", (unsigned long long)value);
        return buffer;
    }
}

const char *ctl_percent(int percent, char *buffer, size_t size)
{
    if (percent == CTL_BUSY_UNKNOWN)
        snprintf(buffer, size, "-");
    else
        snprintf(buffer, size, "%d %%", percent);
    return buffer;
}

int ctl_allowed_percent(const struct gs_wire_client *client)
{
    double share;

    if (client->connected_ns == 0)
        return CTL_BUSY_UNKNOWN;
    share = (double)client->gpu_ns * 100 / (double)client->connected_ns;
    return share > 100 ? 100 : (int)(share + 0.5);
}

/* The user, container and pod of a program, as names. Owns a small cache of users' names,
 * since a directory service may answer slowly and `top` and `serve` ask repeatedly. One
 * thread. */

#define USERS 64

const char *ctl_user_name(uint32_t uid, char *buffer, size_t size)
{
    static struct {
        bool known;
        uint32_t uid;
        char name[64];
    } users[USERS], *user;

    user = &users[uid % USERS];
    if (!user->known || user->uid != uid) {
        const struct passwd *entry = getpwuid(uid);

        if (entry != NULL)
            snprintf(user->name, sizeof user->name, "%s", entry->pw_name);
        else
            snprintf(user->name, sizeof user->name, "%u", uid);
        lockd_text_clean(user->name, sizeof user->name);
        user->uid = uid;
        user->known = true;
    }
    snprintf(buffer, size, "%s", user->name);
    return buffer;
}

const char *ctl_container_text(const struct gs_wire_client *client, char *buffer)
{
    const size_t length = strlen(client->container);
    const bool is_id = length == 64 && strspn(client->container, "0123456789abcdef") == length;

    snprintf(buffer, CTL_CONTAINER_SIZE, "%.*s", is_id ? 12 : CTL_CONTAINER_SIZE - 1,
             client->container);
    return buffer;
}

void ctl_pods_look(struct ctl_answer *answer)
{
    for (size_t i = 0; i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];
        struct pods_name name = {0};
        struct ctl_pod *pod;
        size_t same = 0;

        if (client->pod[0] == '\0')
            continue;
        if (answer->client_pods == NULL)
            answer->client_pods = calloc(answer->client_count, sizeof *answer->client_pods);
        if (answer->client_pods == NULL)
            return;
        while (same < i && (strcmp(answer->clients[same].pod, client->pod) != 0 ||
                            strcmp(answer->clients[same].container, client->container) != 0))
            same++;
        pod = &answer->client_pods[i];
        if (same < i) {
            *pod = answer->client_pods[same];
            continue;
        }
        if (pods_find(NULL, client->pod, &name)) {
            memcpy(pod->name, name.name, sizeof pod->name);
            memcpy(pod->space, name.space, sizeof pod->space);
        }
        pods_container_find(NULL, client->container, pod->container, sizeof pod->container);
        lockd_text_clean(pod->name, sizeof pod->name);
        lockd_text_clean(pod->space, sizeof pod->space);
        lockd_text_clean(pod->container, sizeof pod->container);
    }
}

const struct ctl_pod *ctl_client_pod(const struct ctl_answer *answer, size_t index)
{
    static const struct ctl_pod none;

    return answer->client_pods != NULL ? &answer->client_pods[index] : &none;
}

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

static void write_about(const struct gs_wire_client *client, const struct gs_wire_client *other,
                        char *buffer, size_t size)
{
    const char *reason = client->waits_why == GS_WHY_GOES_FIRST ? "it goes first; "
                         : client->waits_why == GS_WHY_FLOOR
                             ? "the others are to have their floor first; "
                             : "";
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
                 other->name, other->pid, place, reason);
    else
        snprintf(buffer, size,
                 "waits for %s (pid %d): %s%sits turn ends in %s at the latest; it has used "
                 "about %.0f %% of the last minute",
                 other->name, other->pid, place, reason,
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
        [GS_WHY_SILENT] = "does not answer, and gets no turn before it does",
    };
    const struct gs_wire_client *other = find_other(answer, client);
    const char *text = client->waits_why < GS_WHY_COUNT ? alone[client->waits_why] : NULL;

    if (other != NULL && client->waits_why != GS_WHY_NONE)
        write_about(client, other, buffer, CTL_WHY_SIZE);
    else
        snprintf(buffer, CTL_WHY_SIZE, "%s", text != NULL ? text : alone[GS_WHY_QUEUE]);
    return buffer;
}

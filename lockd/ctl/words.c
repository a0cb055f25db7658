/* SPDX-License-Identifier: Apache-2.0
 *
 * words.c: the words of gpusharectl's output. No state.
 */
#include "common/size.h"
#include "lockd/ctl/words.h"

#include "lockd/protocol/names.h"

#include <stdio.h>

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

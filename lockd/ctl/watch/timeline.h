/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline.h: turns the daemon's events into a timeline in Chrome's trace format, which
 * https://ui.perfetto.dev and chrome://tracing show.
 */
#pragma once

#include "lockd/protocol/wire.h"

#include <stddef.h>
#include <stdio.h>

/* One program on one device: one track. */
struct ctl_track {
    uint64_t program;
    uint8_t uuid[16];
    int32_t pid;
    uint32_t phase, line; /* line: the number of the track in the file */
    uint64_t since_ns, moved_out, moved_in, saved, resident;
    char name[32];
    int ended;
};

struct ctl_timeline {
    FILE *out;
    struct ctl_track *tracks;
    size_t count, room;
    uint64_t base_ns, last_ns; /* of the first event, of the newest */
    uint64_t written, lost;
};

/* Writes the beginning. */
void ctl_timeline_init(struct ctl_timeline *timeline, FILE *out);
/* Writes the span that ends with the event. 0 or -ENOMEM. */
int ctl_timeline_add(struct ctl_timeline *timeline, const struct gs_wire_event *event);
/* Ends all spans at end_ns, and the file. 0, or -errno: the file could not be written. */
int ctl_timeline_finish(struct ctl_timeline *timeline, uint64_t end_ns);
void ctl_timeline_deinit(struct ctl_timeline *timeline);

struct ctl;
/* Records the events of the next time into that file (NULL: standard output), and prints how many.
 * Ends sooner at SIGINT and SIGTERM. Returns the exit code. */
enum ctl_exit ctl_trace_write(struct ctl *ctl, const char *path, uint64_t duration_ns);

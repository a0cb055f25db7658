/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline.c: writes a timeline while events come in: a span is written when it ends, so memory
 * is one record for each program and device, however long the recording.
 *
 * The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
 * ("Trace Event Format"): complete events "X" with ts and dur in microseconds, counters "C",
 * names "M".
 */
#include "lockd/ctl/watch/timeline.h"
#include "lockd/ctl/json.h"
#include "common/fd.h"

#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

static const char *phase_name(uint32_t phase)
{
    static const char *const names[GS_PHASE_COUNT] = {
        [GS_PHASE_IDLE] = "idle",       [GS_PHASE_COMPUTE] = "compute",
        [GS_PHASE_STOP] = "stop",       [GS_PHASE_COPY_OUT] = "copy_out",
        [GS_PHASE_COPY_IN] = "copy_in", [GS_PHASE_WAIT] = "wait",
        [GS_PHASE_PAUSED] = "paused",
    };

    return phase < GS_PHASE_COUNT ? names[phase] : "unknown";
}

static double to_micros(const struct ctl_timeline *timeline, uint64_t at_ns)
{
    return at_ns > timeline->base_ns ? (double)(at_ns - timeline->base_ns) / 1e3 : 0;
}

static int put_event(struct ctl_timeline *timeline, json_t *event)
{
    if (event == NULL)
        return -ENOMEM;
    fputs(timeline->written++ == 0 ? "\n" : ",\n", timeline->out);
    json_dumpf(event, timeline->out, JSON_COMPACT | JSON_REAL_PRECISION(15));
    json_decref(event);
    return 0;
}

static int name_track(struct ctl_timeline *timeline, const struct ctl_track *track)
{
    char uuid[LOCKD_UUID_SIZE];
    json_t *name = ctl_json_text(track->name);
    int code;

    code = put_event(timeline, json_pack("{s:s, s:s, s:i, s:i, s:{s:o}}", "ph", "M", "name",
                                         "process_name", "pid", track->pid, "tid", 0, "args",
                                         "name", name));
    return code != 0
               ? code
               : put_event(timeline, json_pack("{s:s, s:s, s:i, s:I, s:{s:s}}", "ph", "M",
                                               "name", "thread_name", "pid", track->pid, "tid",
                                               (json_int_t)track->line, "args", "name",
                                               lockd_uuid_text(track->uuid, uuid)));
}

/* The span that ends with this event (or with the recording). */
static int close_span(struct ctl_timeline *timeline, const struct ctl_track *track,
                      uint64_t end_ns, uint64_t moved_out, uint64_t moved_in, uint64_t saved)
{
    const uint64_t ns = end_ns > track->since_ns ? end_ns - track->since_ns : 0;

    if (ns == 0 || track->phase == GS_PHASE_IDLE)
        return 0;
    return put_event(timeline,
                     json_pack("{s:s, s:s, s:s, s:i, s:I, s:f, s:f, s:{s:I, s:I, s:I, s:I}}",
                               "ph", "X", "cat", "gpushare", "name", phase_name(track->phase),
                               "pid", track->pid, "tid", (json_int_t)track->line, "ts",
                               to_micros(timeline, track->since_ns), "dur", (double)ns / 1e3,
                               "args", "moved_out", (json_int_t)(moved_out - track->moved_out),
                               "moved_in", (json_int_t)(moved_in - track->moved_in), "saved",
                               (json_int_t)(saved - track->saved), "resident",
                               (json_int_t)track->resident));
}

static int count_bytes(struct ctl_timeline *timeline, const struct ctl_track *track,
                       const struct gs_wire_event *event)
{
    char uuid[LOCKD_UUID_SIZE], name[64];
    const uint64_t resident = event->ended != 0 ? 0 : event->resident;
    const uint64_t demand = event->ended != 0 ? 0 : event->demand;

    snprintf(name, sizeof name, "memory %.12s", lockd_uuid_text(track->uuid, uuid));
    return put_event(timeline,
                     json_pack("{s:s, s:s, s:i, s:I, s:f, s:{s:I, s:I}}", "ph", "C", "name",
                               name, "pid", track->pid, "id", (json_int_t)track->line, "ts",
                               to_micros(timeline, event->at_ns), "args", "on card",
                               (json_int_t)resident, "on host",
                               (json_int_t)(demand > resident ? demand - resident : 0)));
}

static struct ctl_track *track_of(struct ctl_timeline *timeline,
                                  const struct gs_wire_event *event, int *fresh)
{
    struct ctl_track *track;

    *fresh = 0;
    for (size_t i = timeline->count; i-- > 0;) {
        track = &timeline->tracks[i];
        if (track->program == event->program && track->ended == 0 &&
            memcmp(track->uuid, event->uuid, sizeof track->uuid) == 0)
            return track;
    }
    if (timeline->count == timeline->room) {
        const size_t room = timeline->room == 0 ? 16 : timeline->room * 2;

        track = realloc(timeline->tracks, room * sizeof *track);
        if (track == NULL)
            return NULL;
        timeline->tracks = track;
        timeline->room = room;
    }
    track = &timeline->tracks[timeline->count++];
    *track = (struct ctl_track){
        .program = event->program,
        .pid = event->pid,
        .line = (uint32_t)timeline->count,
    };
    memcpy(track->uuid, event->uuid, sizeof track->uuid);
    memcpy(track->name, event->name, sizeof track->name);
    *fresh = 1;
    return track;
}

void ctl_timeline_init(struct ctl_timeline *timeline, FILE *out)
{
    *timeline = (struct ctl_timeline){.out = out};
    fputs(
        "{\"displayTimeUnit\": \"ms\", \"otherData\": {\"producer\": \"gpusharectl " GS_VERSION
        "\"}, \"traceEvents\": [",
        out);
}

int ctl_timeline_add(struct ctl_timeline *timeline, const struct gs_wire_event *event)
{
    int fresh, code = 0;
    struct ctl_track *track = track_of(timeline, event, &fresh);

    if (track == NULL)
        return -ENOMEM;
    if (timeline->base_ns == 0)
        timeline->base_ns = event->at_ns;
    if (event->at_ns > timeline->last_ns)
        timeline->last_ns = event->at_ns;
    timeline->lost += event->lost;
    if (event->lost != 0)
        code =
            put_event(timeline, json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:{s:I}}", "ph", "i",
                                          "s", "g", "name", "events lost", "pid", event->pid,
                                          "tid", 0, "ts", to_micros(timeline, event->at_ns),
                                          "args", "count", (json_int_t)event->lost));
    if (code == 0 && fresh != 0)
        code = name_track(timeline, track);
    else if (code == 0 && (event->phase != track->phase || event->ended != 0))
        code = close_span(timeline, track, event->at_ns, event->moved_out, event->moved_in,
                          event->saved);
    if (code == 0 && (fresh != 0 || event->resident != track->resident || event->ended != 0))
        code = count_bytes(timeline, track, event);
    track->resident = event->resident;
    if (fresh != 0 || event->phase != track->phase) {
        track->phase = event->phase;
        track->since_ns = event->at_ns;
        track->moved_out = event->moved_out;
        track->moved_in = event->moved_in;
        track->saved = event->saved;
    }
    track->ended = event->ended != 0;
    return code;
}

int ctl_timeline_finish(struct ctl_timeline *timeline, uint64_t end_ns)
{
    int code = 0;

    if (end_ns < timeline->last_ns)
        end_ns = timeline->last_ns;
    for (size_t i = 0; i < timeline->count && code == 0; i++) {
        const struct ctl_track *track = &timeline->tracks[i];

        if (track->ended == 0)
            code = close_span(timeline, track, end_ns, track->moved_out, track->moved_in,
                              track->saved);
    }
    fputs("\n]}\n", timeline->out);
    if (fflush(timeline->out) != 0 || ferror(timeline->out) != 0)
        return errno != 0 ? -errno : -EIO;
    return code;
}

void ctl_timeline_deinit(struct ctl_timeline *timeline)
{
    free(timeline->tracks);
    *timeline = (struct ctl_timeline){0};
}

/* `gpusharectl trace`: records the phases of all programs (compute, copy out, copy in,
 * wait, stop) for some seconds and writes them as a timeline. */

#define SLICE_MS 200
#define TRACE_NS 10000000000u /* unless another duration is given */

/* The target of the recording. */
struct place {
    const char *path; /* NULL: standard output */
    FILE *file;
};

/* The file is emptied when the first event is there, so that a refusal does not destroy an
 * older recording. */
static int begin_file(struct ctl *ctl, const struct place *place, struct ctl_timeline *timeline)
{
    struct stat st;

    if (timeline->out != NULL)
        return 0;
    if (place->path != NULL && fstat(fileno(place->file), &st) == 0 && S_ISREG(st.st_mode) &&
        ftruncate(fileno(place->file), 0) != 0)
        return gs_err_errno(&ctl->err, -errno, "%s: cannot write the timeline", place->path);
    ctl_timeline_init(timeline, place->file);
    return 0;
}

/* 0: go on, 1: the end, -errno. */
static int take_event(struct ctl *ctl, int fd, const struct place *place,
                      struct ctl_timeline *timeline)
{
    union lockd_message message;
    int code = ctl_receive(ctl, fd, &message);

    if (code != 0)
        return code;
    if (message.header.type == GS_WIRE_END && message.end.code != 0)
        return gs_err_set(&ctl->err, message.end.code, "%s", message.end.text);
    if (message.header.type == GS_WIRE_END)
        return 1;
    if (message.header.type != GS_WIRE_EVENT)
        return gs_err_set(&ctl->err, -EBADMSG, "%s: unexpected message type %u", ctl->path,
                          message.header.type);
    code = begin_file(ctl, place, timeline);
    if (code != 0)
        return code;
    if (ctl_timeline_add(timeline, &message.event) != 0)
        return gs_err_set(&ctl->err, -ENOMEM, "out of memory for the timeline");
    return 0;
}

/* Records until the daemon or the user ends the recording. */
static int record_events(struct ctl *ctl, int fd, uint64_t duration_ns,
                         const struct place *place, struct ctl_timeline *timeline)
{
    struct gs_wire_trace wish = {.duration_ns = duration_ns};
    const uint64_t patience = lockd_now() + duration_ns + 10000000000u;
    int code = 0;

    lockd_wire_header(&wish.header, GS_WIRE_TRACE);
    if (send(fd, &wish, sizeof wish, MSG_NOSIGNAL) < 0 && errno != EPIPE)
        code = gs_err_errno(&ctl->err, -errno, "%s: cannot send the request", ctl->path);
    while (code == 0 && ctl_interrupted == 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        if (poll(&ready, 1, SLICE_MS) > 0)
            code = take_event(ctl, fd, place, timeline);
        if (code == 0 && lockd_now() > patience)
            code =
                gs_err_set(&ctl->err, -ETIMEDOUT, "%s: the recording does not end", ctl->path);
    }
    return code >= 0 ? begin_file(ctl, place, timeline) : code; /* also without any event */
}

static int open_place(struct ctl *ctl, const char *path, struct place *place)
{
    int fd;

    *place = (struct place){.file = stdout};
    if (path == NULL || strcmp(path, "-") == 0)
        return 0;
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    *place = (struct place){path, fd >= 0 ? fdopen(fd, "w") : NULL};
    if (place->file != NULL)
        return 0;
    gs_err_errno(&ctl->err, -errno, "%s: cannot write the timeline", path);
    if (fd >= 0)
        close(fd);
    return -EIO;
}

enum ctl_exit ctl_trace_write(struct ctl *ctl, const char *path, uint64_t duration_ns)
{
    GS_CLOSE_FD int fd = ctl_connect(ctl);
    struct ctl_timeline timeline = {0};
    struct place place;
    int code, written = 0;

    if (fd < 0)
        return ctl_fail(ctl);
    ctl_catch_interrupts();
    if (open_place(ctl, path, &place) != 0) {
        ctl_fail(ctl);
        return CTL_FAILED;
    }
    code = record_events(ctl, fd, duration_ns, &place, &timeline);
    if (timeline.out != NULL)
        written = ctl_timeline_finish(&timeline, lockd_now());
    if (place.path != NULL && fclose(place.file) != 0 && written == 0)
        written = -errno;
    if (code == 0 && written != 0)
        code = gs_err_errno(&ctl->err, written, "%s: cannot write the timeline",
                            place.path != NULL ? place.path : "standard output");
    if (code == 0)
        fprintf(stderr,
                "gpusharectl: %llu events of %zu tracks%s; open it in "
                "https://ui.perfetto.dev\n",
                (unsigned long long)timeline.written, timeline.count,
                timeline.lost != 0 ? ", some were lost (see `events lost`)" : "");
    ctl_timeline_deinit(&timeline);
    return code == 0 ? CTL_OK : ctl_fail(ctl);
}

struct trace_words {
    const char *path;
    uint64_t duration_ns;
    bool json; /* the output is always JSON */
};
_Static_assert(sizeof(struct trace_words) <= CTL_WORDS_SIZE, "the words of a command");

static const struct gs_option trace_options[] = {
    {"seconds", "N", GS_OPTION_SECONDS, NULL, 1000000, 3600000000000u,
     "duration of the recording (default: 10)", NULL, 0,
     offsetof(struct trace_words, duration_ns)},
    {"output", "FILE", GS_OPTION_TEXT, NULL, 0, 0,
     "write the timeline to FILE (default: standard output)", NULL, 'o',
     offsetof(struct trace_words, path)},
    {"json", NULL, GS_OPTION_FLAG, NULL, 0, 0, "accepted: a timeline is always JSON", NULL, 0,
     offsetof(struct trace_words, json)},
    {0},
};

static enum ctl_exit trace_run(struct ctl *ctl, const void *words, int count, char **operands)
{
    const struct trace_words *given = words;

    (void)count, (void)operands;
    return ctl_trace_write(ctl, given->path,
                           given->duration_ns != 0 ? given->duration_ns : TRACE_NS);
}

const struct ctl_command ctl_trace = {
    "trace",   "",   "record a timeline (Perfetto, chrome://tracing)",
    trace_run, NULL, trace_options};

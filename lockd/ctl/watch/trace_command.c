/* SPDX-License-Identifier: Apache-2.0
 *
 * trace_command.c: `gpusharectl trace`: records the phases of all programs (compute, copy out, copy
 * in, wait, stop) for some seconds and writes them as a timeline.
 */
#include "common/fd.h"
#include "lockd/ctl/ask.h"
#include "lockd/ctl/ctl.h"
#include "lockd/ctl/watch/timeline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SLICE_MS 200

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    (void)number;
    interrupted = 1;
}

/* The target of the recording. */
struct place {
    const char *path; /* NULL: standard output */
    FILE *file;
};

/* The file is emptied when the first event is there, so that a refusal does not destroy an older
 * recording. */
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
    const uint64_t patience = ctl_now() + duration_ns + 10000000000u;
    int code = 0;

    lockd_wire_header(&wish.header, GS_WIRE_TRACE);
    if (send(fd, &wish, sizeof wish, MSG_NOSIGNAL) < 0 && errno != EPIPE)
        code = gs_err_errno(&ctl->err, -errno, "%s: cannot send the request", ctl->path);
    while (code == 0 && interrupted == 0) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};

        if (poll(&ready, 1, SLICE_MS) > 0)
            code = take_event(ctl, fd, place, timeline);
        if (code == 0 && ctl_now() > patience)
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

static enum ctl_exit write_trace(struct ctl *ctl, const char *path, uint64_t duration_ns)
{
    GS_CLOSE_FD int fd = ctl_connect(ctl);
    struct ctl_timeline timeline = {0};
    struct place place;
    int code, written = 0;

    if (fd < 0)
        return ctl_fail(ctl);
    if (open_place(ctl, path, &place) != 0) {
        ctl_fail(ctl);
        return CTL_FAILED;
    }
    code = record_events(ctl, fd, duration_ns, &place, &timeline);
    if (timeline.out != NULL)
        written = ctl_timeline_finish(&timeline, ctl_now());
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

static const struct lockd_option trace_options[] = {
    {"seconds", "N", LOCKD_OPTION_SECONDS, NULL, 0, 3600000000000u,
     "duration of the recording (default: 10)", NULL, 0,
     offsetof(struct trace_words, duration_ns)},
    {"output", "FILE", LOCKD_OPTION_TEXT, NULL, 0, 0,
     "write the timeline to FILE (default: standard output)", NULL, 'o',
     offsetof(struct trace_words, path)},
    {"json", NULL, LOCKD_OPTION_FLAG, NULL, 0, 0, "accepted: a timeline is always JSON", NULL,
     0, offsetof(struct trace_words, json)},
    {0},
};

static enum ctl_exit trace_run(struct ctl *ctl, int argc, char **argv)
{
    const struct sigaction action = {.sa_handler = on_signal};
    struct trace_words words = {.duration_ns = 10000000000u};
    int index = 1;

    if (lockd_options_read(trace_options, &words, false, argc, argv, &index, &ctl->err) != 0)
        return ctl_usage(&ctl_trace, "%s", ctl->err.text);
    if (index != argc)
        return ctl_usage(&ctl_trace, "takes options only, no arguments");
    if (words.duration_ns == 0)
        return ctl_usage(&ctl_trace, "--seconds: must be more than 0");
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    return write_trace(ctl, words.path, words.duration_ns);
}

const struct ctl_command ctl_trace = {
    "trace",   "",   "record a timeline (Perfetto, chrome://tracing)",
    trace_run, NULL, trace_options};

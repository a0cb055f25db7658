/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c: asks NVIDIA's management library how busy devices and programs are, through a child
 * process (nvml_calls.c) and with a time limit: a lost card can keep every call of the library in
 * the kernel for ever. Owns that process. A process that does not answer is killed; until the
 * kernel lets it go there is no other process.
 */
#include "lockd/ctl/ask.h"
#include "lockd/ctl/nvml.h"
#include "lockd/ctl/nvml_calls.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS          1000000u
#define FIRST_MS    1000u  /* limit of the first answer: it loads the driver's library */
#define REFRESH_MS  100u   /* limit of a refresh; a later answer counts for the next refresh */
#define LATE_MS     10000u /* after which a remark says so */
#define LEAVE_MS    60000u /* after which the process is killed; another process is tried later */
#define RETRY_MS    60000u /* the driver may be loaded after the page is first served */
#define WAIT_MAX_S  3600u
#define REAP_NS     100000u /* between two looks whether the process has ended */
#define REAP_ROUNDS 500     /* a killed process is gone by then, unless the kernel holds it */
#define END_ROUNDS  10000   /* a process that has closed its end is about to end by itself */
#define PERCENT_MAX 100u

struct ctl_nvml {
    enum ctl_nvml_use use;
    unsigned first_ms;
    pid_t pid;  /* 0: there is none */
    int fd;     /* -1: there is none */
    bool ready; /* it has reported that NVML works */
    bool asked; /* the answer to `question` has not come */
    struct nvml_question question;
    uint64_t since; /* when the question was sent; before the first question, when it started */
    uint64_t left_at; /* when the last process was given up; 0: none yet */
    bool remarked;
    char remark[160];
};

/* GPUSHARE_NVML_WAIT: seconds. */
static unsigned first_wait_ms(void)
{
    const char *text = getenv("GPUSHARE_NVML_WAIT");
    char *end;
    double seconds;

    if (text == NULL || *text == '\0')
        return FIRST_MS;
    seconds = strtod(text, &end);
    return *end == '\0' && seconds >= 0 && seconds <= WAIT_MAX_S ? (unsigned)(seconds * 1000)
                                                                 : FIRST_MS;
}

/* Reaps the process if it has ended. Its wait status, or -1. */
static int reap_child(struct ctl_nvml *nvml, int rounds)
{
    int status = -1;

    for (int i = 0; nvml->pid > 0 && i < rounds; i++) {
        const pid_t ended = waitpid(nvml->pid, &status, WNOHANG);

        if (ended != 0) {
            nvml->pid = 0;
            return ended > 0 ? status : -1;
        }
        if (i + 1 < rounds)
            nanosleep(&(struct timespec){.tv_nsec = REAP_NS}, NULL);
    }
    return -1;
}

static void leave_child(struct ctl_nvml *nvml, uint64_t now)
{
    if (nvml->fd >= 0)
        close(nvml->fd);
    nvml->fd = -1;
    nvml->asked = false;
    nvml->left_at = now;
    if (nvml->pid > 0)
        kill(nvml->pid, SIGKILL);
    reap_child(nvml, 1);
}

static void set_remark(struct ctl_nvml *nvml, const char *what)
{
    if (nvml->remarked)
        return;
    nvml->remarked = true;
    snprintf(nvml->remark, sizeof nvml->remark, "NVML %s: BUSY is not known", what);
}

const char *ctl_nvml_remark(struct ctl_nvml *nvml)
{
    static char text[sizeof nvml->remark];

    if (nvml == NULL || nvml->remark[0] == '\0')
        return NULL;
    memcpy(text, nvml->remark, sizeof text);
    nvml->remark[0] = '\0';
    return text;
}

static bool has_closed(const struct ctl_nvml *nvml)
{
    char byte;
    const ssize_t got = recv(nvml->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);

    return got == 0 || (got < 0 && errno == ECONNRESET);
}

/* The process closed its end without an answer, or sent an invalid answer. */
static void leave_broken(struct ctl_nvml *nvml)
{
    const int status =
        nvml->fd >= 0 ? reap_child(nvml, has_closed(nvml) ? END_ROUNDS : REAP_ROUNDS) : -1;
    char what[64] = "ended the process that asked it";

    if (status >= 0 && WIFSIGNALED(status))
        snprintf(what, sizeof what, "crashed (%s)", strsignal(WTERMSIG(status)));
    set_remark(nvml, what);
    leave_child(nvml, ctl_now());
}

static void remark_silence(struct ctl_nvml *nvml, uint64_t late)
{
    char what[64];

    snprintf(what, sizeof what, "did not answer within %.3g s", (double)late / 1e9);
    set_remark(nvml, what);
}

static void start_child(struct ctl_nvml *nvml)
{
    const pid_t starter = getpid();
    int ends[2];

    nvml->since = ctl_now();
    nvml->ready = false;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        nvml->left_at = nvml->since;
        return;
    }
    nvml->pid = fork();
    if (nvml->pid == 0)
        nvml_child_run(ends[1], starter);
    close(ends[1]);
    nvml->fd = ends[0];
    if (nvml->pid < 0) {
        nvml->pid = 0;
        leave_child(nvml, nvml->since);
    }
}

/* Whether anything can be received before `until`; the end of the stream counts. */
static bool wait_for_child(const struct ctl_nvml *nvml, uint64_t until)
{
    struct pollfd end = {.fd = nvml->fd, .events = POLLIN};
    int got;

    do {
        const uint64_t now = ctl_now();

        got = poll(&end, 1, now >= until ? 0 : (int)((until - now + MS - 1) / MS));
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

/* Receives all of it; else false, and the process is given up. The process sends an answer only
 * when all of it is known. */
static bool receive_all(struct ctl_nvml *nvml, void *bytes, size_t size)
{
    const uint64_t until = ctl_now() + (uint64_t)nvml->first_ms * MS;

    while (size > 0) {
        ssize_t got;

        if (!wait_for_child(nvml, until)) {
            remark_silence(nvml, (uint64_t)nvml->first_ms * MS);
            leave_child(nvml, ctl_now());
            return false;
        }
        got = recv(nvml->fd, bytes, size, MSG_DONTWAIT);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0) {
            leave_broken(nvml);
            return false;
        }
        bytes = (char *)bytes + got;
        size -= (size_t)got;
    }
    return true;
}

/* Receives the first message. False: not yet, or the process was given up. */
static bool child_ready(struct ctl_nvml *nvml, uint64_t until)
{
    uint32_t works = 0;

    if (nvml->ready)
        return true;
    if (!wait_for_child(nvml, until) || !receive_all(nvml, &works, sizeof works))
        return false;
    if (works != 1)
        leave_child(nvml, ctl_now()); /* no driver, which is no fault */
    else
        nvml->ready = true;
    return nvml->ready;
}

/* The answer has not come. That is no fault of a process that is kept: its library may need many
 * seconds to start. */
static void check_patience(struct ctl_nvml *nvml)
{
    const uint64_t now = ctl_now(), late = now - nvml->since;

    if (nvml->fd < 0)
        return;
    if (nvml->use == CTL_NVML_ONCE || late > (uint64_t)LATE_MS * MS)
        remark_silence(nvml, late);
    if (nvml->use == CTL_NVML_ONCE || late > (uint64_t)LEAVE_MS * MS)
        leave_child(nvml, now);
}

static bool send_question(struct ctl_nvml *nvml)
{
    if (nvml->use == CTL_NVML_KEPT)
        nvml->since =
            ctl_now(); /* the other processes have one limit for all answers together */
    nvml->asked = send(nvml->fd, &nvml->question, sizeof nvml->question,
                       MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof nvml->question;
    if (!nvml->asked)
        leave_broken(nvml);
    return nvml->asked;
}

struct ctl_nvml *ctl_nvml_open(enum ctl_nvml_use use)
{
    struct ctl_nvml *nvml = calloc(1, sizeof *nvml);

    if (nvml == NULL)
        return NULL;
    nvml->use = use;
    nvml->fd = -1;
    nvml->first_ms = first_wait_ms();
    start_child(nvml);
    return nvml;
}

void ctl_nvml_close(struct ctl_nvml *nvml)
{
    if (nvml == NULL)
        return;
    leave_child(nvml, 0);
    reap_child(nvml, REAP_ROUNDS); /* init reaps a process that the kernel holds */
    free(nvml);
}

bool ctl_nvml_uuid(struct ctl_nvml *nvml, unsigned index, char uuid[LOCKD_UUID_SIZE])
{
    struct nvml_uuid_answer answer;
    uint64_t until;

    if (nvml == NULL || nvml->fd < 0)
        return false;
    until = nvml->since + (uint64_t)nvml->first_ms * MS;
    nvml->question.device_count = 0;
    nvml->question.index = index;
    if (child_ready(nvml, until) && send_question(nvml) && wait_for_child(nvml, until) &&
        receive_all(nvml, &answer, sizeof answer)) {
        answer.uuid[sizeof answer.uuid - 1] = '\0';
        memcpy(uuid, answer.uuid, LOCKD_UUID_SIZE);
        return answer.found == 1;
    }
    check_patience(nvml);
    return false;
}

/* The newest sample of a process; 0 without one, since idle processes have none. */
static int busy_of(const struct nvml_sample *samples, int32_t count, int32_t pid)
{
    const struct nvml_sample *newest = NULL;

    for (int32_t i = 0; i < count; i++) {
        if (samples[i].pid == (unsigned)pid && samples[i].gpu <= PERCENT_MAX &&
            (newest == NULL || samples[i].time_us > newest->time_us))
            newest = &samples[i];
    }
    return newest != NULL ? (int)newest->gpu : 0;
}

/* Copies the answer about one device into the daemon's answer, whose devices may have changed
 * since the question. */
static void fill_in(struct ctl_answer *answer, const char *asked,
                    const struct nvml_device_answer *device, const struct nvml_sample *samples)
{
    char uuid[LOCKD_UUID_SIZE];

    for (size_t i = 0; i < answer->device_count; i++) {
        if (strcmp(lockd_uuid_text(answer->devices[i].uuid, uuid), asked) == 0)
            answer->device_busy[i] = device->busy;
    }
    for (size_t i = 0; device->samples >= 0 && i < answer->client_count; i++) {
        const struct gs_wire_client *client = &answer->clients[i];

        if (client->condition != GS_CONDITION_NO_DEVICE && client->pid > 0 &&
            (client->flags & GS_CLIENT_FOREIGN) == 0 &&
            strcmp(lockd_uuid_text(client->uuid, uuid), asked) == 0)
            answer->client_busy[i] = busy_of(samples, device->samples, client->pid);
    }
}

static bool receive_device(struct ctl_nvml *nvml, struct ctl_answer *answer, const char *asked)
{
    struct nvml_device_answer device;
    struct nvml_sample *samples = NULL;
    bool whole = receive_all(nvml, &device, sizeof device);

    if (whole && (device.busy < CTL_BUSY_UNKNOWN || device.busy > (int32_t)PERCENT_MAX ||
                  device.samples > (int32_t)NVML_SAMPLES_MAX)) {
        leave_broken(nvml);
        return false;
    }
    if (whole && device.samples > 0) {
        samples = calloc((size_t)device.samples, sizeof *samples);
        if (samples == NULL)
            leave_child(nvml, ctl_now());
        whole = samples != NULL &&
                receive_all(nvml, samples, (size_t)device.samples * sizeof *samples);
    }
    if (whole)
        fill_in(answer, asked, &device, samples);
    free(samples);
    return whole;
}

/* The answer to the question, if it comes before `until`. */
static bool receive_answer(struct ctl_nvml *nvml, struct ctl_answer *answer, uint64_t until)
{
    if (!wait_for_child(nvml, until))
        return false;
    for (uint32_t i = 0; i < nvml->question.device_count; i++) {
        if (!receive_device(nvml, answer, nvml->question.uuid[i]))
            return false;
    }
    nvml->asked = false;
    return true;
}

static void ask_about(struct ctl_nvml *nvml, const struct ctl_answer *answer)
{
    struct nvml_question *question = &nvml->question;

    question->device_count = 0;
    for (size_t i = 0; i < answer->device_count && i < NVML_DEVICES_MAX; i++)
        lockd_uuid_text(answer->devices[i].uuid, question->uuid[question->device_count++]);
    send_question(nvml);
}

static int *make_unknown(size_t count)
{
    int *busy = malloc((count + 1) * sizeof *busy);

    for (size_t i = 0; busy != NULL && i <= count; i++)
        busy[i] = CTL_BUSY_UNKNOWN;
    return busy;
}

void ctl_nvml_look_once(struct ctl_answer *answer)
{
    struct ctl_nvml *nvml = answer->device_count != 0 ? ctl_nvml_open(CTL_NVML_ONCE) : NULL;
    const char *remark;

    ctl_nvml_look(nvml, answer);
    remark = ctl_nvml_remark(nvml);
    if (remark != NULL)
        fprintf(stderr, "gpusharectl: %s\n", remark);
    ctl_nvml_close(nvml);
}

void ctl_nvml_look(struct ctl_nvml *nvml, struct ctl_answer *answer)
{
    uint64_t until;

    if (nvml == NULL || answer->device_busy != NULL || answer->client_busy != NULL)
        return;
    answer->device_busy = make_unknown(answer->device_count);
    answer->client_busy = make_unknown(answer->client_count);
    if (answer->device_busy == NULL || answer->client_busy == NULL || answer->device_count == 0)
        return;
    if (nvml->fd < 0) {
        reap_child(nvml, 1);
        if (nvml->pid > 0 || nvml->use == CTL_NVML_ONCE ||
            ctl_now() - nvml->left_at < (uint64_t)RETRY_MS * MS)
            return;
        start_child(nvml);
    }
    until = nvml->left_at == 0 && !nvml->asked && !nvml->ready
                ? nvml->since + (uint64_t)nvml->first_ms * MS
                : ctl_now() + (uint64_t)REFRESH_MS * MS;
    if (!child_ready(nvml, until)) {
        check_patience(nvml);
        return;
    }
    if (nvml->asked) /* of the last refresh */
        receive_answer(nvml, answer, 0);
    if (nvml->fd >= 0 && !nvml->asked)
        ask_about(nvml, answer);
    if (nvml->fd >= 0 && nvml->asked && !receive_answer(nvml, answer, until))
        check_patience(nvml);
}

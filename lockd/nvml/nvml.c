/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c: asks NVIDIA's management library about the GPUs and their processes, through a child
 * process (nvml_calls.c) and with a time limit: a lost card can keep every call of the library in
 * the kernel for ever. Owns that process. A process that does not answer is killed; until the
 * kernel lets it go there is no other process.
 */
#include "lockd/nvml/nvml.h"
#include "lockd/base/clock.h"
#include "lockd/nvml/nvml_calls.h"

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

void nvml_table_free(struct nvml_table *table)
{
    free(table->gpus);
    free(table->processes);
    *table = (struct nvml_table){0};
}

/* Makes a table with room for so many, all zero; copies a table. 0 or -ENOMEM. */
static int nvml_table_make(struct nvml_table *table, uint32_t gpus, uint32_t processes)
{
    *table = (struct nvml_table){.gpus = calloc(gpus + 1u, sizeof *table->gpus),
                                 .processes = calloc(processes + 1u, sizeof *table->processes),
                                 .gpu_count = gpus,
                                 .process_count = processes};
    if (table->gpus != NULL && table->processes != NULL)
        return 0;
    nvml_table_free(table);
    return -ENOMEM;
}

int nvml_table_copy(struct nvml_table *to, const struct nvml_table *from)
{
    const int code = nvml_table_make(to, from->gpu_count, from->process_count);

    if (code != 0)
        return code;
    memcpy(to->gpus, from->gpus, from->gpu_count * sizeof *to->gpus);
    memcpy(to->processes, from->processes, from->process_count * sizeof *to->processes);
    return 0;
}

const struct nvml_gpu *nvml_gpu(const struct nvml_table *table, const char *uuid)
{
    for (uint32_t i = 0; table != NULL && i < table->gpu_count; i++) {
        if (strcmp(table->gpus[i].uuid, uuid) == 0)
            return &table->gpus[i];
    }
    return NULL;
}

const struct nvml_gpu *nvml_gpu_number(const struct nvml_table *table, unsigned index)
{
    for (uint32_t i = 0; table != NULL && i < table->gpu_count; i++) {
        if (table->gpus[i].index == index)
            return &table->gpus[i];
    }
    return NULL;
}

const struct nvml_process *nvml_process(const struct nvml_table *table,
                                        const struct nvml_gpu *gpu, int32_t pid)
{
    for (uint32_t i = 0; i < table->process_count; i++) {
        if (table->processes[i].pid == pid && &table->gpus[table->processes[i].gpu] == gpu)
            return &table->processes[i];
    }
    return NULL;
}

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

struct nvml {
    enum nvml_use use;
    unsigned first_ms;
    pid_t pid;               /* 0: there is none */
    int fd;                  /* -1: there is none */
    bool ready;              /* it has reported that NVML works */
    bool asked;              /* the answer has not come */
    struct nvml_table table; /* the newest answer */
    bool answered;           /* `table` has an answer */
    uint64_t answers;        /* so far */
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
static int reap_child(struct nvml *nvml, int rounds)
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

static void leave_child(struct nvml *nvml, uint64_t now)
{
    if (nvml->fd >= 0)
        close(nvml->fd);
    nvml->fd = -1;
    nvml->asked = false;
    nvml->left_at = now;
    nvml->answered = false; /* what it told is no longer known to be so */
    if (nvml->pid > 0)
        kill(nvml->pid, SIGKILL);
    reap_child(nvml, 1);
}

static void set_remark(struct nvml *nvml, const char *what)
{
    if (nvml->remarked)
        return;
    nvml->remarked = true;
    snprintf(nvml->remark, sizeof nvml->remark,
             "NVML %s: BUSY and other processes are not known", what);
}

const char *nvml_remark(struct nvml *nvml)
{
    static char text[sizeof nvml->remark];

    if (nvml == NULL || nvml->remark[0] == '\0')
        return NULL;
    memcpy(text, nvml->remark, sizeof text);
    nvml->remark[0] = '\0';
    return text;
}

/* The process closed its end without an answer, or sent an invalid answer. */
static void leave_broken(struct nvml *nvml)
{
    char byte;
    const ssize_t got = recv(nvml->fd, &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
    const bool closed = got == 0 || (got < 0 && errno == ECONNRESET);
    const int rounds = nvml->use == NVML_NEVER_WAITS ? 1 : closed ? END_ROUNDS : REAP_ROUNDS;
    const int status = nvml->fd >= 0 ? reap_child(nvml, rounds) : -1;
    char what[64] = "ended the process that asked it";

    if (status >= 0 && WIFSIGNALED(status))
        snprintf(what, sizeof what, "crashed (%s)", strsignal(WTERMSIG(status)));
    set_remark(nvml, what);
    leave_child(nvml, lockd_now());
}

static void remark_silence(struct nvml *nvml, uint64_t late)
{
    char what[64];

    snprintf(what, sizeof what, "did not answer within %.3g s", (double)late / 1e9);
    set_remark(nvml, what);
}

static void start_child(struct nvml *nvml)
{
    const pid_t starter = getpid();
    int ends[2];

    nvml->since = lockd_now();
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
static bool wait_for_child(const struct nvml *nvml, uint64_t until)
{
    struct pollfd end = {.fd = nvml->fd, .events = POLLIN};
    int got;

    do {
        const uint64_t now = lockd_now();

        got = poll(&end, 1, now >= until ? 0 : (int)((until - now + MS - 1) / MS));
    } while (got < 0 && errno == EINTR);
    return got > 0;
}

/* Receives all of it; else false, and the process is given up. The process sends an answer only
 * when all of it is known. */
static bool receive_all(struct nvml *nvml, void *bytes, size_t size)
{
    const uint64_t until =
        lockd_now() +
        (uint64_t)(nvml->use == NVML_NEVER_WAITS ? REFRESH_MS : nvml->first_ms) * MS;

    while (size > 0) {
        ssize_t got;

        if (!wait_for_child(nvml, until)) {
            remark_silence(nvml, lockd_now() - nvml->since);
            leave_child(nvml, lockd_now());
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
static bool child_ready(struct nvml *nvml, uint64_t until)
{
    uint32_t works = 0;

    if (nvml->ready)
        return true;
    if (!wait_for_child(nvml, until) || !receive_all(nvml, &works, sizeof works))
        return false;
    if (works != 1)
        leave_child(nvml, lockd_now()); /* no driver, which is no fault */
    else
        nvml->ready = true;
    return nvml->ready;
}

/* The answer has not come. A kept process is not at fault then: its library may need many
 * seconds to start. */
static void check_patience(struct nvml *nvml)
{
    const uint64_t now = lockd_now(), late = now - nvml->since;

    if (nvml->fd < 0)
        return;
    if (nvml->use == NVML_ONCE || late > (uint64_t)LATE_MS * MS) {
        remark_silence(nvml, late);
        nvml->answered = false;
    }
    if (nvml->use == NVML_ONCE || late > (uint64_t)LEAVE_MS * MS)
        leave_child(nvml, now);
}

struct nvml *nvml_open(enum nvml_use use)
{
    struct nvml *nvml = calloc(1, sizeof *nvml);

    if (nvml == NULL)
        return NULL;
    nvml->use = use;
    nvml->fd = -1;
    nvml->first_ms = first_wait_ms();
    start_child(nvml);
    return nvml;
}

void nvml_close(struct nvml *nvml)
{
    if (nvml == NULL)
        return;
    leave_child(nvml, 0);
    /* init reaps a process that the kernel holds */
    reap_child(nvml, nvml->use == NVML_NEVER_WAITS ? 1 : REAP_ROUNDS);
    nvml_table_free(&nvml->table);
    free(nvml);
}

int nvml_descriptor(const struct nvml *nvml)
{
    return nvml != NULL ? nvml->fd : -1;
}

/* Whether the table keeps to nvml.h: it comes from a process in which a strange library runs. */
static bool is_sound(const struct nvml_table *table)
{
    for (uint32_t i = 0; i < table->gpu_count; i++) {
        struct nvml_gpu *gpu = &table->gpus[i];

        if (memchr(gpu->uuid, '\0', sizeof gpu->uuid) == NULL ||
            memchr(gpu->name, '\0', sizeof gpu->name) == NULL)
            return false;
    }
    for (uint32_t i = 0; i < table->process_count; i++) {
        if (table->processes[i].gpu >= table->gpu_count)
            return false;
    }
    return true;
}

/* Receives the whole answer if it begins before `until`. */
static bool receive_answer(struct nvml *nvml, uint64_t until)
{
    struct nvml_answer counts;
    struct nvml_table table;

    if (!wait_for_child(nvml, until) || !receive_all(nvml, &counts, sizeof counts))
        return false;
    if (counts.gpu_count > NVML_GPUS_MAX || counts.process_count > NVML_PROCESSES_MAX) {
        leave_broken(nvml);
        return false;
    }
    if (nvml_table_make(&table, counts.gpu_count, counts.process_count) != 0) {
        leave_child(nvml, lockd_now());
        return false;
    }
    if (!receive_all(nvml, table.gpus, counts.gpu_count * sizeof *table.gpus) ||
        !receive_all(nvml, table.processes, counts.process_count * sizeof *table.processes)) {
        nvml_table_free(&table);
        return false;
    }
    if (!is_sound(&table)) {
        nvml_table_free(&table);
        leave_broken(nvml);
        return false;
    }
    nvml_table_free(&nvml->table);
    nvml->table = table;
    nvml->table.answer = ++nvml->answers;
    nvml->table.asked_at = nvml->since;
    nvml->answered = true;
    nvml->asked = false;
    return true;
}

/* Starts another process if there is none and its time has come. False: there is none. */
static bool has_child(struct nvml *nvml)
{
    if (nvml->fd < 0) {
        reap_child(nvml, 1);
        if (nvml->pid > 0 || nvml->use == NVML_ONCE ||
            lockd_now() - nvml->left_at < (uint64_t)RETRY_MS * MS)
            return false;
        start_child(nvml);
    }
    return nvml->fd >= 0;
}

const struct nvml_table *nvml_look(struct nvml *nvml)
{
    uint64_t until; /* this look may wait until then */

    if (nvml == NULL || !has_child(nvml))
        return NULL;
    until = nvml->use == NVML_NEVER_WAITS ? 0
            : nvml->left_at == 0 && !nvml->asked && !nvml->ready
                ? nvml->since + (uint64_t)nvml->first_ms * MS
                : lockd_now() + (uint64_t)REFRESH_MS * MS;
    if (!child_ready(nvml, until)) {
        check_patience(nvml);
        return NULL;
    }
    if (nvml->asked) /* of the last look */
        receive_answer(nvml, 0);
    if (nvml->fd >= 0 && !nvml->asked) {
        if (nvml->use != NVML_ONCE) /* which has one limit for all that it waits for */
            nvml->since = lockd_now();
        nvml->asked = send(nvml->fd, "?", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;
        if (!nvml->asked)
            leave_broken(nvml);
    }
    if (nvml->fd >= 0 && nvml->asked && !receive_answer(nvml, until))
        check_patience(nvml);
    return nvml->answered ? &nvml->table : NULL;
}

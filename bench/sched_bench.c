/* SPDX-License-Identifier: Apache-2.0
 *
 * sched_bench.c: what gpushare-lockd costs with a thousand programs, against what was promised.
 *
 * Two parts. The scheduler alone, in this process: modelled programs (tests/lockd/model.h) report,
 * the time inside the scheduler is taken for each report. Then a daemon: so many programs connect,
 * report and echo; how much memory the daemon has grown by, and what it uses of a processor
 * when all of them are quiet. One thread.
 *
 *   sched_bench --lockd PROGRAM [--programs N] [--events N] [--idle SECONDS] [--json FILE]
 *
 * Exit status 1: the daemon has more than MEMORY_MOST for each program (times depend on the
 * machine, so they only print), or something went wrong.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lockd/protocol/wire_check.h"
#include "tests/lockd/model.h"

#define RATE_LEAST 100000.0 /* decisions a second */
#define P99_MOST   50.0     /* us */
#define MEMORY_MOST                                                                            \
    4608.0 /* bytes for each program; 512 of them are the path of its control group */
#define IDLE_MOST 0.1 /* per cent of a processor */

struct options {
    const char *lockd, *json;
    uint32_t programs;
    uint64_t events;
    unsigned idle_s;
};

/* A figure and its bound. */
struct row {
    const char *name, *unit;
    double value, bound;
    bool at_least;
};

static struct row rows[8];
static unsigned row_count;

static void add_row(const char *name, const char *unit, double value, double bound,
                    bool at_least)
{
    const struct row row = {name, unit, value, bound, at_least};
    const bool met = at_least ? value >= bound : value <= bound;

    rows[row_count++] = row;
    printf("%-8s%-44s%12.4g %-12s at %s %g\n", met ? "met" : "NOT MET", name, value, unit,
           at_least ? "least" : "most", bound);
}

static int measure_decisions(const struct options *options, const char *rate_name,
                             const char *p99_name, uint64_t demand_most, uint32_t users)
{
    const struct model_options model_options = {
        .seed = 1,
        .clients = options->programs,
        .users = users,
        .devices = 1,
        .total = 140 * GIB,
        .quantum_ns = LOCKD_AUTO,
        .demand_most = demand_most,
        .bandwidth = 50000000000,
        .change_ns = 2000 * NS_PER_MS,
        .grows = true,
        .unchecked = true,
    };
    struct model *model = model_new(&model_options);
    const struct model_figures *figures;
    const char *failure;

    if (model == NULL)
        return -ENOMEM;
    figures = model_figures(model);
    failure = model_run(model, options->events);
    if (failure != NULL) {
        fprintf(stderr, "sched_bench: %s\n", failure);
    } else {
        add_row(rate_name, "decisions/s",
                (double)figures->states * 1e9 / (double)sched_max(figures->decision_ns, 1),
                RATE_LEAST, true);
        add_row(p99_name, "us", (double)model_decision_quantile(model, 0.99) / 1e3, P99_MOST,
                false);
    }
    model_free(model);
    return failure == NULL ? 0 : -EIO;
}

/* --- the daemon --- */

struct daemon {
    char folder[64];
    struct sockaddr_un address;
    pid_t pid;
};

static void daemon_end(struct daemon *daemon)
{
    if (daemon->pid > 0) {
        kill(daemon->pid, SIGTERM);
        waitpid(daemon->pid, NULL, 0);
    }
    unlink(daemon->address.sun_path);
    rmdir(daemon->folder);
}

static int connect_one(const struct daemon *daemon)
{
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *)&daemon->address, sizeof daemon->address) == 0)
        return fd;
    close(fd);
    return -ECONNREFUSED;
}

static void pause_ms(unsigned ms)
{
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000}, NULL);
}

static int daemon_begin(struct daemon *daemon, const char *program)
{
    int fd = -ECONNREFUSED;

    strcpy(daemon->folder, "/tmp/gpushare-bench-XXXXXX");
    if (mkdtemp(daemon->folder) == NULL)
        return -errno;
    daemon->address.sun_family = AF_UNIX;
    snprintf(daemon->address.sun_path, sizeof daemon->address.sun_path, "%s/lockd.sock",
             daemon->folder);
    daemon->pid = fork();
    if (daemon->pid == 0) {
        execl(program, program, "--socket", daemon->address.sun_path, "--log-level", "error",
              (char *)NULL);
        _exit(127);
    }
    for (int i = 0; i < 1000 && fd < 0; i++) {
        pause_ms(10);
        fd = connect_one(daemon);
    }
    if (fd < 0) {
        daemon_end(daemon);
        return fd;
    }
    close(fd);
    return 0;
}

/* A number from a file of /proc/PID: the one behind key, or the first. */
static int proc_number(pid_t pid, const char *name, const char *key, uint64_t *value)
{
    char path[64], line[256];
    FILE *file;
    int error = -ENOENT;

    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    file = fopen(path, "re");
    if (file == NULL)
        return -errno;
    while (error != 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, key, strlen(key)) == 0) {
            *value = strtoull(line + strlen(key), NULL, 10);
            error = 0;
        }
    }
    fclose(file);
    return error;
}

static int send_report(int fd, struct gs_wire_state *state)
{
    lockd_wire_header(&state->header, GS_WIRE_STATE);
    return send(fd, state, sizeof *state, MSG_NOSIGNAL) == (ssize_t)sizeof *state ? 0 : -EIO;
}

static int enter_program(int fd, uint32_t number, struct gs_wire_state *state)
{
    struct gs_wire_hello hello = {.pid = (int32_t)number + 1, .weight = GS_WEIGHT_DEFAULT};

    lockd_wire_header(&hello.header, GS_WIRE_HELLO);
    strcpy(hello.name, "bench");
    if (send(fd, &hello, sizeof hello, MSG_NOSIGNAL) != (ssize_t)sizeof hello)
        return -EIO;
    state->uuid[0] = 1;
    state->flags = GS_STATE_WANT;
    state->device_total = 140 * GIB;
    state->device_free = UINT64_MAX;
    state->demand = 32 * MIB;
    return send_report(fd, state);
}

/* Echoes what has come; true when anything has. */
static bool answer_target(int fd, struct gs_wire_state *state)
{
    struct gs_wire_target target;
    bool any = false;

    while (recv(fd, &target, sizeof target, MSG_DONTWAIT) == (ssize_t)sizeof target) {
        state->target_seq = target.seq;
        if ((target.flags & GS_TARGET_RUN) != 0 && target.budget >= state->demand) {
            state->resident = state->demand;
            state->flags |= GS_STATE_RUNNING;
        }
        any = true;
    }
    return any && send_report(fd, state) == 0;
}

/* All connect, and echo until nothing comes any more. */
static int crowd_in(const struct daemon *daemon, struct pollfd *sockets,
                    struct gs_wire_state *states, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        sockets[i] = (struct pollfd){.fd = -1, .events = POLLIN};
    for (uint32_t i = 0; i < count; i++) {
        sockets[i].fd = connect_one(daemon);
        if (sockets[i].fd < 0 || enter_program(sockets[i].fd, i, &states[i]) != 0)
            return -ECONNREFUSED;
    }
    while (poll(sockets, count, 500) > 0) {
        for (uint32_t i = 0; i < count; i++) {
            if ((sockets[i].revents & (POLLHUP | POLLERR)) != 0)
                return -ECONNRESET;
            if (sockets[i].revents != 0)
                answer_target(sockets[i].fd, &states[i]);
        }
    }
    return 0;
}

static int weigh_daemon(const struct daemon *daemon, const struct options *options,
                        uint64_t before_kib)
{
    uint64_t after_kib = 0, ran = 0, ran_later = 0;

    if (proc_number(daemon->pid, "status", "RssAnon:", &after_kib) != 0)
        return -EIO;
    add_row("daemon: memory for each program", "bytes",
            (double)sched_less(after_kib, before_kib) * 1024 / options->programs, MEMORY_MOST,
            false);
    if (options->idle_s == 0)
        return 0;
    if (proc_number(daemon->pid, "schedstat", "", &ran) != 0)
        return -EIO;
    pause_ms(options->idle_s * 1000);
    if (proc_number(daemon->pid, "schedstat", "", &ran_later) != 0)
        return -EIO;
    add_row("daemon: of a processor, all quiet", "%",
            (double)(ran_later - ran) / 1e7 / options->idle_s, IDLE_MOST, false);
    return 0;
}

static int daemon_part(const struct options *options)
{
    struct daemon daemon = {0};
    struct pollfd *sockets = calloc(options->programs, sizeof *sockets);
    struct gs_wire_state *states = calloc(options->programs, sizeof *states);
    uint64_t before_kib = 0;
    int error = sockets != NULL && states != NULL ? 0 : -ENOMEM;

    if (error == 0)
        error = daemon_begin(&daemon, options->lockd);
    if (error == 0) {
        error = proc_number(daemon.pid, "status", "RssAnon:", &before_kib);
        if (error == 0)
            error = crowd_in(&daemon, sockets, states, options->programs);
        if (error == 0)
            error = weigh_daemon(&daemon, options, before_kib);
        for (uint32_t i = 0; i < options->programs; i++) {
            if (sockets[i].fd > 0)
                close(sockets[i].fd);
        }
        daemon_end(&daemon);
    }
    free(sockets);
    free(states);
    return error;
}

/* --- */

static int write_json(const struct options *options)
{
    FILE *file = fopen(options->json, "we");
    const time_t now = time(NULL);
    struct tm day;
    char date[16];

    if (file == NULL)
        return -errno;
    strftime(date, sizeof date, "%F", gmtime_r(&now, &day));
    fprintf(
        file,
        "{\"benchmark\": \"sched\", \"date\": \"%s\", \"card\": \"none\", \"driver\": null, "
        "\"programs\": %u, \"scale\": \"part of what is asked for\", \"rows\": [\n",
        date, options->programs);
    for (unsigned i = 0; i < row_count; i++)
        fprintf(file,
                "  {\"name\": \"%s\", \"value\": %.6g, \"unit\": \"%s\", \"ceiling\": %g, "
                "\"ratio\": %.4g, \"against\": \"at %s\"}%s\n",
                rows[i].name, rows[i].value, rows[i].unit, rows[i].bound,
                rows[i].value / rows[i].bound, rows[i].at_least ? "least" : "most",
                i + 1 < row_count ? "," : "");
    fprintf(file, "]}\n");
    return fclose(file) == 0 ? 0 : -EIO;
}

static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--lockd") == 0)
            options->lockd = argv[i + 1];
        else if (strcmp(argv[i], "--json") == 0)
            options->json = argv[i + 1];
        else if (strcmp(argv[i], "--programs") == 0)
            options->programs = (uint32_t)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--events") == 0)
            options->events = strtoull(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--idle") == 0)
            options->idle_s = (unsigned)strtoul(argv[i + 1], NULL, 10);
        else
            return -EINVAL;
    }
    return argc % 2 == 1 && options->lockd != NULL && options->programs > 0 &&
                   options->programs <= 2000
               ? 0
               : -EINVAL;
}

int main(int argc, char **argv)
{
    struct options options = {.programs = 1000, .events = 2000000, .idle_s = 30};
    struct rlimit files;
    int error;

    if (read_options(argc, argv, &options) != 0) {
        fprintf(stderr, "usage: sched_bench --lockd PROGRAM [--programs 1..2000] [--events N] "
                        "[--idle SECONDS] [--json FILE]\n");
        return 2;
    }
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    error = measure_decisions(&options, "scheduler: all fit", "scheduler: all fit, p99",
                              64 * MIB, 1);
    if (error == 0)
        error = measure_decisions(&options, "scheduler: ten times the device",
                                  "scheduler: ten times the device, p99", 3 * GIB, 1);
    if (error == 0)
        error = measure_decisions(&options, "scheduler: ... of a hundred users",
                                  "scheduler: ... of a hundred users, p99", 3 * GIB, 100);
    if (error == 0)
        error = daemon_part(&options);
    if (error == 0 && options.json != NULL)
        error = write_json(&options);
    if (error != 0) {
        fprintf(stderr, "sched_bench: %s: %s\n", options.lockd, strerror(-error));
        return 1;
    }
    for (unsigned i = 0; i < row_count; i++) {
        if (strcmp(rows[i].unit, "bytes") == 0 && rows[i].value > rows[i].bound)
            return 1;
    }
    return 0;
}

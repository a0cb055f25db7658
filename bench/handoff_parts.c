/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff_parts.c: the processes of handoff_bench as its parent sees them: starts and ends
 * them, tells them what to do, asks the daemon. State: stage.
 */
#include "bench/handoff.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockd/ctl/ctl.h"

#define RESERVE  "64MiB" /* the daemon's, and what the limit has more than the programs use */
#define WAIT_S   300
#define CONTEXTS (2ull << 30) /* with ballast: left free for three contexts */
#define SETTLE_S 3            /* the ballast is there */
#define EDGES    (4ull << 20) /* what both programs hold beside their ranges */

static const uint64_t reserve = 64ull << 20;

_Noreturn void fail(const char *what)
{
    fprintf(stderr, "handoff_bench: %s (what the parts said is in %s)\n", what, stage.folder);
    exit(1);
}

/* --- processes --- */

static void limit_child(const char *log, uint64_t limit)
{
    char path[PATH_MAX], text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
    setenv("GPUSHARE_DEVICE_LIMIT", text, 1);
    snprintf(path, sizeof path, "%s/%s.stats", stage.folder, log);
    setenv("GPUSHARE_STATS", path, 1);
    snprintf(path, sizeof path, "%s/%s.runtime", stage.folder, log);
    setenv("GPUSHARE_LOG", path, 1);
}

/* In the child: it ends with the benchmark, whatever happens to that. */
static void die_with_parent(void)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        _exit(126);
}

/* limit: 0: without gpushare */
static pid_t start_program(const char *role, const char *argument, const char *log,
                           uint64_t limit)
{
    char path[PATH_MAX];
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    die_with_parent();
    snprintf(path, sizeof path, "%s/%s", stage.folder, log);
    if (freopen(path, "w", stdout) == NULL || dup2(1, 2) < 0)
        _exit(126);
    if (limit != 0)
        limit_child(log, limit);
    else
        setenv("GPUSHARE_DISABLE", "1", 1);
    execl(stage.self, "handoff_bench", role, argument, (char *)NULL);
    _exit(127);
}

static void finish_program(pid_t pid, const char *what)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(what);
}

void measure_ceiling(uint64_t bytes)
{
    char text[32];

    snprintf(text, sizeof text, "%llu", (unsigned long long)bytes);
    finish_program(start_program("--ceiling", text, "ceiling", 0), "measuring the bus failed");
}

static pid_t start_daemon(const struct spec *spec)
{
    char path[PATH_MAX], quantum[32];
    struct stat info;
    pid_t pid;

    snprintf(path, sizeof path, "%s/lockd.sock", stage.folder);
    unlink(path);
    setenv("GPUSHARE_SOCKET", path, 1);
    snprintf(quantum, sizeof quantum, "%u", spec->quantum_ms);
    pid = fork();
    if (pid == 0) {
        char log[PATH_MAX];

        die_with_parent();
        snprintf(log, sizeof log, "%s/lockd.log", stage.folder);
        if (freopen(log, "a", stderr) == NULL)
            _exit(126);
        execl(stage.lockd, "gpushare-lockd", "--socket", path, "--quantum", quantum,
              "--reserve", RESERVE, "--exclusive", spec->exclusive ? "yes" : "no",
              "--hand-over", spec->hand_over, "--host",
              stage.host != NULL ? stage.host : "auto", (char *)NULL);
        _exit(127);
    }
    for (unsigned i = 0; i < 1000 && stat(path, &info) != 0; i++)
        rest_ns(5000000);
    if (stat(path, &info) != 0)
        fail("gpushare-lockd did not start");
    return pid;
}

void remove_folder(void)
{
    DIR *folder = opendir(stage.folder);
    const struct dirent *entry;

    while (folder != NULL && (entry = readdir(folder)) != NULL)
        if (entry->d_name[0] != '.')
            unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder != NULL)
        closedir(folder);
    rmdir(stage.folder);
}

void start_parts(const struct spec *spec, uint64_t usable)
{
    char leave[32];

    stage.lockd_pid = start_daemon(spec);
    if (stage.full) {
        snprintf(leave, sizeof leave, "%llu",
                 (unsigned long long)(usable + reserve + CONTEXTS));
        stage.ballast = start_program("--ballast", leave, "ballast", 0);
        rest_ns(SETTLE_S * NS_PER_S);
    }
    stage.program[0] = start_program("--program", "0", "program0", usable + reserve + EDGES);
    stage.program[1] = start_program("--program", "1", "program1", usable + reserve + EDGES);
}

void end_parts(void)
{
    for (unsigned i = 0; i < 2; i++) {
        order(i, QUIT);
        finish_program(stage.program[i], "a program failed");
    }
    if (stage.full) {
        kill(stage.ballast, SIGKILL);
        waitpid(stage.ballast, NULL, 0);
    }
    kill(stage.lockd_pid, SIGTERM);
    waitpid(stage.lockd_pid, NULL, 0);
}

/* --- what they are told --- */

void order(unsigned number, enum command command)
{
    struct side *side = &stage.board->side[number];

    atomic_store(&side->finished, 0);
    atomic_store(&side->command, command);
    atomic_fetch_add(&side->order, 1);
}

static void expect_alive(uint64_t until)
{
    if (now_ns() > until)
        fail("a program hangs");
    if (waitpid(-1, NULL, WNOHANG) > 0)
        fail("a program or the daemon ended");
}

void await_done(unsigned number)
{
    struct side *side = &stage.board->side[number];
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;

    while (atomic_load(&side->done) != atomic_load(&side->order)) {
        expect_alive(until);
        rest_ns(50000);
    }
}

uint64_t await_finished(unsigned number)
{
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;
    uint64_t at;

    while ((at = atomic_load(&stage.board->side[number].finished)) == 0)
        if (now_ns() > until)
            fail("a program hangs");
    return at;
}

uint64_t turns_so_far(void)
{
    return atomic_load(&stage.board->side[0].turns) + atomic_load(&stage.board->side[1].turns);
}

void await_turns(uint64_t turns)
{
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;

    while (turns_so_far() < turns) {
        expect_alive(until);
        rest_ns(1000000);
    }
}

/* --- the daemon --- */

static void ask_daemon(const void *request, size_t size, struct ctl_answer *answer)
{
    struct ctl ctl = {.path = ""};

    snprintf(ctl.path, sizeof ctl.path, "%.80s/lockd.sock", stage.folder);
    gs_places_name(&ctl.places, ctl.path);
    if (ctl_ask(&ctl, request, size, answer) != 0 || answer->end.code != 0) {
        fprintf(stderr, "handoff_bench: %s%s\n", ctl.err.text, answer->end.text);
        fail("the daemon did not do what it was asked");
    }
}

static void tell_daemon(uint32_t op, unsigned number)
{
    struct gs_wire_control request = {.op = op, .pid = stage.program[number]};
    struct ctl_answer answer;

    lockd_wire_header(&request.header, GS_WIRE_CONTROL);
    ask_daemon(&request, sizeof request, &answer);
    ctl_answer_deinit(&answer);
}

static void ask_status(struct ctl_answer *answer)
{
    struct gs_wire_header request;

    lockd_wire_header(&request, GS_WIRE_STATUS);
    ask_daemon(&request, sizeof request, answer);
}

double moved_out(void)
{
    struct ctl_answer answer;
    double sum = 0;

    ask_status(&answer);
    for (size_t i = 0; i < answer.client_count; i++)
        sum += (double)answer.clients[i].moved_out;
    ctl_answer_deinit(&answer);
    return sum;
}

double found_equal(void)
{
    struct ctl_answer answer;
    double sum = 0;

    ask_status(&answer);
    for (size_t i = 0; i < answer.client_count; i++)
        sum += (double)answer.clients[i].saved_equal;
    ctl_answer_deinit(&answer);
    return sum;
}

static uint64_t read_resident(unsigned number)
{
    struct ctl_answer answer;
    uint64_t bytes = 0;

    ask_status(&answer);
    for (size_t i = 0; i < answer.client_count; i++)
        bytes +=
            answer.clients[i].pid == stage.program[number] ? answer.clients[i].resident : 0;
    ctl_answer_deinit(&answer);
    return bytes;
}

void suspend(unsigned number)
{
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;

    tell_daemon(GS_CONTROL_SUSPEND, number);
    while (read_resident(number) > 0) {
        expect_alive(until);
        rest_ns(5000000);
    }
}

void resume(unsigned number)
{
    tell_daemon(GS_CONTROL_RESUME, number);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff_bench.c: how long it takes from the last work of one program to the first work of the
 * next, when the memory of the one must go out and that of the other come in; against the
 * rate of the bus, measured in the same run by plain pinned copies.
 *
 *   handoff_bench [--gib N[,N...]] [--dirty-of N] [--share S] [--turns N] [--quantum MS]
 *                 [--full] [--json FILE] [--lockd PATH]
 *     --gib       device memory of each of the two programs (default 8)
 *     --dirty-of  in a turn every so many 2 MiB blocks are written (default 1: all)
 *     --share     of the card (the limit) that each program has (default 1: all must move)
 *     --full      fills the rest of the card, so that freed memory is what is used next
 *
 * Everything is timed from outside, by the programs' own work; nothing is taken from the log of
 * libgpushare. Each block read back must hold what was written.
 */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/handoff.h"

#define RESERVE   (64ull << 20)
#define SMALL     (2ull << 20) /* what the program's small allocation takes */
#define CONTEXTS  (2ull << 30) /* with --full: left free for three contexts */
#define MAX_SIZES 16
#define BOARD_FD  9
#define WAIT_S    300

struct options {
    double gib[MAX_SIZES];
    unsigned sizes, turns, quantum_ms, dirty_of;
    double share;
    bool full;
    const char *json, *lockd;
};

struct result {
    double gib, overflow;     /* bytes that each switch must move, each way */
    double first_s, median_s; /* hand-off: the first, and the median of the later ones */
    double out_s, in_s;       /* one way */
    double moved_out_per_switch;
    unsigned switches, wrong;
};

static struct board *board;
static char folder[PATH_MAX - 64];
static char self_path[PATH_MAX];

static void fail(const char *what)
{
    fprintf(stderr, "handoff_bench: %s (what the parts said is in %s)\n", what, folder);
    exit(1);
}

/* --- processes --- */

static pid_t start(const char *role, const char *argument, const char *log, uint64_t limit)
{
    char text[32], path[PATH_MAX];
    const pid_t pid = fork();

    if (pid != 0)
        return pid;
    snprintf(path, sizeof path, "%s/%s", folder, log);
    if (freopen(path, "w", stdout) == NULL || dup2(1, 2) < 0)
        _exit(126);
    snprintf(text, sizeof text, "%llu", (unsigned long long)limit);
    if (limit != 0) {
        snprintf(path, sizeof path, "%s/%s.stats", folder, log);
        setenv("GPUSHARE_DEVICE_LIMIT", text, 1);
        setenv("GPUSHARE_STATS", path, 1);
        snprintf(path, sizeof path, "%s/%s.runtime", folder, log);
        setenv("GPUSHARE_LOG", path, 1);
    } else {
        setenv("GPUSHARE_DISABLE", "1", 1);
    }
    execl(self_path, "handoff_bench", role, argument, (char *)NULL);
    _exit(127);
}

static void finish(pid_t pid, const char *what)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail(what);
}

static pid_t start_daemon(const struct options *options)
{
    char path[PATH_MAX], quantum[32];
    struct stat info;
    pid_t pid;

    snprintf(path, sizeof path, "%s/lockd.sock", folder);
    setenv("GPUSHARE_SOCKET", path, 1);
    snprintf(quantum, sizeof quantum, "%u", options->quantum_ms);
    pid = fork();
    if (pid == 0) {
        char log[PATH_MAX];

        snprintf(log, sizeof log, "%s/lockd.log", folder);
        if (freopen(log, "w", stderr) == NULL)
            _exit(126);
        execl(options->lockd, "gpushare-lockd", "--socket", path, "--quantum", quantum,
              "--reserve", "64MiB", (char *)NULL);
        _exit(127);
    }
    for (unsigned i = 0; i < 1000 && stat(path, &info) != 0; i++)
        rest_ns(5000000);
    if (stat(path, &info) != 0)
        fail("gpushare-lockd did not start");
    return pid;
}

/* --- steering the programs --- */

static void order(unsigned number, enum command command)
{
    struct side *side = &board->side[number];

    atomic_store(&side->finished, 0);
    atomic_store(&side->command, command);
    atomic_fetch_add(&side->order, 1);
}

static void await_done(unsigned number)
{
    struct side *side = &board->side[number];
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;

    while (atomic_load(&side->done) != atomic_load(&side->order)) {
        if (now_ns() > until || waitpid(-1, NULL, WNOHANG) > 0)
            fail("a program ended or hangs");
        rest_ns(50000);
    }
}

static uint64_t await_finished(unsigned number)
{
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;
    uint64_t at;

    while ((at = atomic_load(&board->side[number].finished)) == 0)
        if (now_ns() > until)
            fail("a program hangs");
    return at;
}

/* --- figures --- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* From the last work of `from` to the first of `to`: for each gap of `to`, the gap of `from`
 * that begins within it and ends later. */
static unsigned hand_offs(const struct side *from, const struct side *to, double *seconds)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < to->gap_count; i++)
        for (uint32_t k = 0; k < from->gap_count; k++) {
            const struct gap *a = &from->gaps[k], *b = &to->gaps[i];

            if (a->from > b->from && a->from < b->to && a->to > b->to &&
                b->to - b->from > board->turn_gap)
                seconds[count++] = (double)(b->to - a->from) / 1e9;
        }
    return count;
}

static double moved_out(const char *log)
{
    char path[PATH_MAX], text[8192];
    const char *at;
    size_t length;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s.stats", folder, log);
    file = fopen(path, "r");
    if (file == NULL)
        return 0;
    length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = '\0';
    at = strstr(text, "\"moved_out\":");
    return at != NULL ? strtod(at + 12, NULL) : 0;
}

static void judge(struct result *result)
{
    static double all[2 * MAX_GAPS];
    unsigned count = hand_offs(&board->side[0], &board->side[1], all);

    count += hand_offs(&board->side[1], &board->side[0], all + count);
    result->switches = count;
    if (count == 0)
        fail("no hand-off has happened");
    qsort(all, count, sizeof all[0], compare);
    result->median_s = all[count / 2];
    result->first_s = all[count - 1];
    result->moved_out_per_switch =
        (moved_out("program0") + moved_out("program1")) / (double)(count + 2);
}

/* --- one size --- */

static void run_turns(const struct options *options)
{
    order(0, WORK);
    order(1, WORK);
    while (atomic_load(&board->side[0].turns) + atomic_load(&board->side[1].turns) <
           options->turns) {
        if (waitpid(-1, NULL, WNOHANG) > 0)
            fail("a program ended");
        rest_ns(1000000);
    }
    order(0, REST);
    await_done(0);
    await_done(1);
    order(1, REST); /* it ran last: its memory is the one that is in place */
    await_done(1);
}

static void one_way(struct result *result)
{
    uint64_t from;

    rest_ns(2500000000u); /* nobody does anything */
    order(1, RELEASE);
    from = await_finished(1);
    order(0, WORK);
    result->in_s = (double)(await_finished(0) - from) / 1e9;
    await_done(1);
    await_done(0);
    order(0, REST);
    await_done(0);
    rest_ns(2500000000u);
    from = now_ns();
    order(1, ALLOCATE);
    result->out_s = (double)(await_finished(1) - from) / 1e9;
    await_done(1);
}

static void run_size(const struct options *options, double gib, struct result *result)
{
    const uint64_t bytes = (uint64_t)(gib * (double)(1ull << 30)) / BLOCK_BYTES * BLOCK_BYTES;
    const uint64_t usable =
        (uint64_t)((double)(bytes + SMALL) / options->share) / BLOCK_BYTES * BLOCK_BYTES;
    char leave[32];
    pid_t program[2], ballast = 0;

    memset(board->side, 0, sizeof board->side);
    board->bytes = bytes;
    board->dirty_of = options->dirty_of;
    board->turn_gap = options->quantum_ms * 1000000ull / 2;
    *result = (struct result){.gib = gib, .overflow = (double)(2 * (bytes + SMALL) - usable)};
    if (options->full) {
        snprintf(leave, sizeof leave, "%llu",
                 (unsigned long long)(usable + RESERVE + CONTEXTS));
        ballast = start("--ballast", leave, "ballast", 0);
        rest_ns(3000000000u);
    }
    program[0] = start("--program", "0", "program0", usable + RESERVE);
    program[1] = start("--program", "1", "program1", usable + RESERVE);
    for (unsigned i = 0; i < 2; i++) {
        order(i, ALLOCATE);
        await_done(i);
    }
    run_turns(options);
    one_way(result);
    for (unsigned i = 0; i < 2; i++) {
        order(i, RELEASE);
        await_done(i);
        result->wrong += atomic_load(&board->side[i].wrong);
        order(i, QUIT);
        finish(program[i], "a program failed");
    }
    if (ballast > 0) {
        kill(ballast, SIGKILL);
        waitpid(ballast, NULL, 0);
    }
    judge(result);
}

/* --- output --- */

static void print(const struct result *result)
{
    const double bytes = result->overflow;

    printf("%5.1f GiB, %5.2f GiB each way: hand-off %.4f s (median of %u, slowest %.4f) = %.1f "
           "GB/s, %.3f of duplex %.1f;\n"
           "  out alone %.4f s = %.1f GB/s, %.3f of %.1f; in alone %.4f s = %.1f GB/s, %.3f of "
           "%.1f; moved out a switch %.4f of the overflow; %u blocks wrong\n",
           result->gib, bytes / (double)(1ull << 30), result->median_s, result->switches,
           result->first_s, 2 * bytes / result->median_s / 1e9,
           2 * bytes / result->median_s / board->bus.duplex, board->bus.duplex / 1e9,
           result->out_s, bytes / result->out_s / 1e9, bytes / result->out_s / board->bus.d2h,
           board->bus.d2h / 1e9, result->in_s, bytes / result->in_s / 1e9,
           bytes / result->in_s / board->bus.h2d, board->bus.h2d / 1e9,
           result->moved_out_per_switch / bytes, result->wrong);
    fflush(stdout);
}

static void row(FILE *file, const char *name, double gib, double rate, double ceiling,
                bool *more)
{
    fprintf(file,
            "%s\n  {\"name\": \"%s %g GiB\", \"value\": %.2f, \"unit\": \"GB/s\", \"ceiling\": "
            "%.2f, \"ratio\": %.4f}",
            *more ? "," : "", name, gib, rate / 1e9, ceiling / 1e9, rate / ceiling);
    *more = true;
}

static int write_json(const struct options *options, const struct result *results)
{
    FILE *file = options->json != NULL ? fopen(options->json, "w") : NULL;
    const time_t now = time(NULL);
    bool more = false;
    char date[16];

    if (options->json == NULL)
        return 0;
    if (file == NULL) {
        perror(options->json);
        return -1;
    }
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    fprintf(file,
            "{\"benchmark\": \"handoff\", \"date\": \"%s\", \"card\": \"%s\", \"driver\": %d, "
            "\"dirty_of\": %u, \"share\": %g, \"full\": %s, \"quantum_ms\": %u,\n \"rows\": [",
            date, board->card, board->driver, options->dirty_of, options->share,
            options->full ? "true" : "false", options->quantum_ms);
    for (unsigned i = 0; i < options->sizes; i++) {
        const struct result *result = &results[i];

        row(file, "hand-off", result->gib, 2 * result->overflow / result->median_s,
            board->bus.duplex, &more);
        row(file, "out alone", result->gib, result->overflow / result->out_s, board->bus.d2h,
            &more);
        row(file, "in alone", result->gib, result->overflow / result->in_s, board->bus.h2d,
            &more);
    }
    fprintf(file, "\n ],\n \"handoffs\": [");
    for (unsigned i = 0; i < options->sizes; i++)
        fprintf(file,
                "%s\n  {\"gib\": %g, \"overflow_bytes\": %.0f, \"median_s\": %.6f, "
                "\"slowest_s\": %.6f, \"switches\": %u, \"out_s\": %.6f, \"in_s\": %.6f, "
                "\"moved_out_per_switch\": %.0f, \"wrong_blocks\": %u}",
                i > 0 ? "," : "", results[i].gib, results[i].overflow, results[i].median_s,
                results[i].first_s, results[i].switches, results[i].out_s, results[i].in_s,
                results[i].moved_out_per_switch, results[i].wrong);
    fprintf(file, "\n ]}\n");
    return fclose(file);
}

/* --- command line --- */

static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--full") == 0) {
            options->full = true;
            continue;
        }
        if (value == NULL)
            return -1;
        if (strcmp(argv[i], "--gib") == 0) {
            char *at = argv[i + 1];

            for (options->sizes = 0; *at != '\0' && options->sizes < MAX_SIZES;
                 at += *at == ',')
                options->gib[options->sizes++] = strtod(at, &at);
            if (*at != '\0')
                return -1;
        } else if (strcmp(argv[i], "--dirty-of") == 0)
            options->dirty_of = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--share") == 0)
            options->share = strtod(value, NULL);
        else if (strcmp(argv[i], "--turns") == 0)
            options->turns = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--quantum") == 0)
            options->quantum_ms = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            options->json = value;
        else if (strcmp(argv[i], "--lockd") == 0)
            options->lockd = value;
        else
            return -1;
        i++;
    }
    return options->dirty_of > 0 && options->turns > 1 && options->quantum_ms > 0 &&
                   options->share > 0.5 && options->share <= 1 && options->sizes > 0
               ? 0
               : -1;
}

static void make_board(void)
{
    const int fd = memfd_create("handoff", 0);

    if (fd < 0 || ftruncate(fd, sizeof *board) != 0 || dup2(fd, BOARD_FD) != BOARD_FD)
        fail("no shared memory");
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
    if (board == MAP_FAILED)
        fail("no shared memory");
}

static int role(char **argv)
{
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
    if (board == MAP_FAILED)
        return -1;
    if (strcmp(argv[1], "--ceiling") == 0)
        return role_ceiling(board, strtoull(argv[2], NULL, 10));
    if (strcmp(argv[1], "--ballast") == 0)
        return role_ballast(board, strtoull(argv[2], NULL, 10));
    return role_program(board, (unsigned)strtoul(argv[2], NULL, 10));
}

static void find_lockd(struct options *options)
{
    static char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", self_path, sizeof self_path - 1);

    if (length > 0)
        self_path[length] = '\0';
    if (options->lockd == NULL) { /* beside it in the build tree */
        snprintf(path, sizeof path, "%.*s/../lockd/gpushare-lockd",
                 (int)(strrchr(self_path, '/') - self_path), self_path);
        options->lockd = path;
    }
}

int main(int argc, char **argv)
{
    struct options options = {
        .gib = {8}, .sizes = 1, .turns = 12, .quantum_ms = 1000, .dirty_of = 1, .share = 1};
    static struct result results[MAX_SIZES];
    unsigned wrong = 0;
    char bytes[32];
    pid_t lockd;

    if (argc == 3 && (strcmp(argv[1], "--ceiling") == 0 || strcmp(argv[1], "--ballast") == 0 ||
                      strcmp(argv[1], "--program") == 0))
        return role(argv);
    if (read_options(argc, argv, &options) != 0) {
        fprintf(stderr, "usage: handoff_bench [--gib N,N...] [--dirty-of N] [--share S] "
                        "[--turns N] [--quantum MS] [--full] [--json FILE] [--lockd PATH]\n");
        return 2;
    }
    find_lockd(&options);
    snprintf(folder, sizeof folder, "%s/gpushare-handoff-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    make_board();
    snprintf(bytes, sizeof bytes, "%llu",
             (unsigned long long)(options.gib[0] < 4 ? options.gib[0] * (double)(1ull << 30)
                                                     : (double)(4ull << 30)));
    finish(start("--ceiling", bytes, "ceiling", 0), "measuring the bus failed");
    lockd = start_daemon(&options);
    for (unsigned i = 0; i < options.sizes; i++) {
        run_size(&options, options.gib[i], &results[i]);
        print(&results[i]);
        wrong += results[i].wrong;
    }
    kill(lockd, SIGTERM);
    waitpid(lockd, NULL, 0);
    if (write_json(&options, results) != 0)
        return 1;
    return wrong != 0;
}

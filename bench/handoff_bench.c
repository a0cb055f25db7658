/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff_bench.c: how long it takes from the last work of one program to the first work of the
 * next, when the memory of the one must go out and that of the other come in; against the
 * rate of the bus, measured in the same run by plain copies.
 *
 *   handoff_bench [--all] [--gib N[,N...]] [--dirty-of N] [--share S] [--turns N] [--quantum
 * MS]
 *                 [--repeat N] [--full] [--equal] [--own] [--hand-over] [--host SIZE] [--json FILE] [--lockd PATH]
 *     --gib       device memory of each of the two programs (default 8; with --all 8,24,48)
 *     --dirty-of  in a turn every so many 2 MiB blocks are written (default 1: all)
 *     --repeat    so many hand-offs (instead of --turns), each with its own rate against the
 *                 duplex rate of the same run: the first one, the worst one, and all in the
 *                 result; beside them as many plain copies of the largest size, as often
 *     --share     of the card (the limit) that each program has (default 1: all must move)
 *     --all       these sizes; and of the middle one: nine of ten blocks unchanged, a share of
 *                 0.6, and exclusive turns of programs that fit (nothing moves)
 *     --full      fills the rest of the card, so that freed memory is what is used next
 *     --equal     also turns in which nothing is written: with other bytes in each program, with
 *                 the same bytes in both, and the same without memory handed over, so that each
 *                 byte is copied
 *     --own       also hand-offs of memory of cuMemCreate, in pieces of 20 MiB
 *     --hand-over each case without memory handed over, and with it (gpushare-lockd(8),
 *                 hand-over; without this option: as the daemon does it by itself)
 *     --host      the daemon's host memory (default: what is available)
 *
 * Sizes for which the card or the host has no room are left out, and it is said. Everything is
 * timed from outside, by the programs' own work; only the bytes moved are the daemon's word.
 * Each block read back must hold what was written.
 */
#include "bench/handoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "lockd/base/hostmem.h"

#define SMALL  (2ull << 20) /* what the program's small allocation takes */
#define MARGIN (4ull << 30) /* of the card: contexts, the reserve */

#define HOST_PART   1.25 /* of a program's memory: what the host must have */
#define MAX_SIZES   16
#define MAX_CASES   (16 * MAX_SIZES + 12)
#define BOARD_FD    9
#define CALM_NS     2500000000ull /* nobody does anything: what freeing memory causes is over */
#define COUNTED_NS  20000000ull   /* the daemon has heard of what was moved */
#define FIRST_TURNS 3             /* are not counted */

struct options {
    double gib[MAX_SIZES];
    unsigned sizes;
    struct spec spec;
    bool all, hand_over, equal, own;
    const char *json;
};

struct stage stage;
static char names[MAX_CASES][64];

/* --- one case --- */

/* Without the first turns. */
static void run_turns(const struct spec *spec, struct result *result)
{
    uint64_t before;
    double moved, found;

    order(0, WORK);
    order(1, WORK);
    await_turns(FIRST_TURNS);
    rest_ns(COUNTED_NS);
    moved = moved_out();
    found = found_equal();
    before = turns_so_far();
    await_turns(before + spec->turns);
    rest_ns(COUNTED_NS);
    result->moved_out = (moved_out() - moved) / (double)(turns_so_far() - before);
    result->found = (found_equal() - found) / (double)(turns_so_far() - before);
    order(0, REST);
    await_done(0);
    await_done(1);
    order(1, REST); /* it ran last: its memory is the one that is in place */
    await_done(1);
}

static void one_way(struct result *result)
{
    uint64_t from;

    rest_ns(CALM_NS);
    order(1, RELEASE);
    from = await_finished(1);
    order(0, WORK);
    result->in_freed_s = (double)(await_finished(0) - from) / 1e9;
    await_done(1);
    await_done(0);
    order(0, REST);
    await_done(0);
    suspend(0);
    rest_ns(CALM_NS);
    order(0, WORK);
    rest_ns(COUNTED_NS); /* it waits at the gate */
    from = now_ns();
    resume(0);
    result->in_s = (double)(await_finished(0) - from) / 1e9;
    await_done(0);
    order(0, WRITE); /* so that every block must be copied */
    await_done(0);
    rest_ns(CALM_NS);
    from = now_ns();
    order(1, ALLOCATE);
    result->out_s = (double)(await_finished(1) - from) / 1e9;
    await_done(1);
}

static uint64_t count_blocks(double bytes)
{
    return (uint64_t)bytes / BLOCK_BYTES * BLOCK_BYTES;
}

static uint64_t usable_bytes(const struct spec *spec)
{
    const uint64_t bytes = count_blocks(spec->gib * (double)(1ull << 30)) + SMALL;

    return spec->exclusive ? 2 * bytes : count_blocks((double)bytes / spec->share);
}

static void run_case(const struct spec *spec, struct result *result)
{
    struct board *board = stage.board;
    const uint64_t usable = usable_bytes(spec);

    memset(board->side, 0, sizeof board->side);
    board->bytes = count_blocks(spec->gib * (double)(1ull << 30));
    board->dirty_of = spec->dirty_of;
    board->equal = spec->equal;
    board->own = spec->own;
    board->turn_gap = spec->quantum_ms * 1000000ull / 2;
    *result = (struct result){.spec = *spec,
                              .overflow = (double)(2 * (board->bytes + SMALL) - usable)};
    start_parts(spec, usable);
    for (unsigned i = 0; i < 2; i++) {
        order(i, ALLOCATE);
        await_done(i);
    }
    run_turns(spec, result);
    if (spec->one_way)
        one_way(result);
    for (unsigned i = 0; i < 2; i++) {
        order(i, RELEASE);
        await_done(i);
        result->wrong += atomic_load(&board->side[i].wrong);
    }
    end_parts();
    judge(result);
}

/* --- cases --- */

static bool has_room(const struct spec *spec)
{
    const double gib = (double)(1ull << 30), card = ((double)usable_bytes(spec) + MARGIN) / gib,
                 host = HOST_PART * spec->gib,
                 card_free = (double)stage.board->free_bytes / gib,
                 host_free = (double)lockd_host_own() / gib;

    if (spec->gib > 1 && card > card_free)
        printf("%s, %g GiB: left out, the card has %.1f GiB free and %.1f are needed\n",
               spec->name, spec->gib, card_free, card);
    else if (stage.host == NULL && !spec->exclusive && host > host_free)
        printf("%s, %g GiB: left out, the host has %.1f GiB available and %.1f are needed "
               "(--host SIZE: try all the same)\n",
               spec->name, spec->gib, host_free, host);
    else
        return true;
    return false;
}

/* Of the middle size, what --all adds. */
static unsigned make_more_cases(const struct options *options, struct spec *cases)
{
    const double middle = options->gib[options->sizes / 2];
    struct spec spec = options->spec;
    unsigned count = 0;

    spec.gib = middle;
    spec.name = "nine of ten unchanged";
    spec.dirty_of = 10;
    cases[count++] = spec;
    spec.name = "a share of 0.6";
    spec.dirty_of = 1;
    spec.share = 0.6;
    cases[count++] = spec;
    spec.name = "exclusive turns";
    spec.gib = middle < 1 ? middle : 1;
    spec.share = 1;
    spec.exclusive = true;
    cases[count++] = spec;
    return count;
}

/* Each without memory handed over, and behind it where memory moves the same with it. */
static unsigned double_cases(struct spec *cases, unsigned count)
{
    struct spec single[MAX_CASES];
    unsigned doubled = 0;

    memcpy(single, cases, count * sizeof *cases);
    for (unsigned i = 0; i < count; i++) {
        cases[doubled] = single[i];
        cases[doubled++].hand_over = "no";
        if (single[i].exclusive)
            continue;
        cases[doubled] = single[i];
        cases[doubled].hand_over = "yes";
        snprintf(names[i], sizeof names[i], "%s, handed over", single[i].name);
        cases[doubled++].name = names[i];
    }
    return doubled;
}

/* The sizes last: the largest takes as long as all others. */
static unsigned make_cases(const struct options *options, struct spec *cases)
{
    unsigned count = options->all ? make_more_cases(options, cases) : 0;
    struct spec spec = options->spec;

    for (unsigned i = 0; i < options->sizes; i++) {
        spec.gib = options->gib[i];
        spec.name = spec.dirty_of > 1 ? "some blocks unchanged" : "hand-off";
        spec.one_way = spec.dirty_of == 1 && spec.share == 1;
        cases[count++] = spec;
        spec.one_way = false;
        for (unsigned own = 0; own <= options->own; own++) {
            spec.own = own != 0;
            if (own != 0) {
                spec.name = "hand-off of cuMemCreate's memory";
                cases[count++] = spec;
            }
            for (unsigned kind = 0; kind < (options->hand_over ? 2 : 3) && options->equal;
                 kind++) {
                static const char *const equal_names[2][3] = {
                    {"nothing written, other bytes", "nothing written, the same bytes",
                     "nothing written, the same bytes, not handed over"},
                    {"cuMemCreate's, nothing written, other bytes",
                     "cuMemCreate's, nothing written, the same bytes",
                     "cuMemCreate's, the same bytes, not handed over"}};

                cases[count] = spec;
                cases[count].dirty_of = 0;
                cases[count].equal = kind != 0;
                if (kind == 2)
                    cases[count].hand_over = "no";
                cases[count++].name = equal_names[own][kind];
            }
        }
        spec.own = false;
    }
    return options->hand_over ? double_cases(cases, count) : count;
}

/* --- command line --- */

static bool read_sizes(const char *text, struct options *options)
{
    char *end;

    for (options->sizes = 0; *text != '\0' && options->sizes < MAX_SIZES; text = end) {
        options->gib[options->sizes] = strtod(text, &end);
        if (end == text || !(options->gib[options->sizes] > 0))
            return false;
        options->sizes++;
        end += *end == ',';
    }
    return *text == '\0';
}

static bool read_option(const char *name, const char *value, struct options *options)
{
    if (strcmp(name, "--gib") == 0)
        return read_sizes(value, options);
    if (strcmp(name, "--dirty-of") == 0)
        options->spec.dirty_of = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--share") == 0)
        options->spec.share = strtod(value, NULL);
    else if (strcmp(name, "--turns") == 0)
        options->spec.turns = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--repeat") == 0) {
        options->spec.turns = (unsigned)strtoul(value, NULL, 10);
        options->spec.repeat = true;
    } else if (strcmp(name, "--quantum") == 0)
        options->spec.quantum_ms = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--json") == 0)
        options->json = value;
    else if (strcmp(name, "--lockd") == 0)
        stage.lockd = value;
    else if (strcmp(name, "--host") == 0)
        stage.host = value;
    else
        return false;
    return true;
}

static bool read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--full") == 0)
            stage.full = true;
        else if (strcmp(argv[i], "--all") == 0)
            options->all = true;
        else if (strcmp(argv[i], "--hand-over") == 0)
            options->hand_over = true;
        else if (strcmp(argv[i], "--equal") == 0)
            options->equal = true;
        else if (strcmp(argv[i], "--own") == 0)
            options->own = true;
        else if (i + 1 >= argc || !read_option(argv[i], argv[i + 1], options))
            return false;
        else
            i++;
    }
    if (options->sizes == 0)
        read_sizes(options->all ? "8,24,48" : "8", options);
    return options->spec.dirty_of > 0 && options->spec.turns > 1 &&
           options->spec.quantum_ms > 0 && options->spec.share > 0.5 &&
           options->spec.share <= 1 && options->sizes > 0;
}

static void make_board(void)
{
    const int fd = memfd_create("handoff", 0);

    if (fd < 0 || ftruncate(fd, sizeof *stage.board) != 0 || dup2(fd, BOARD_FD) != BOARD_FD)
        fail("no shared memory");
    stage.board =
        mmap(NULL, sizeof *stage.board, PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);
    if (stage.board == MAP_FAILED)
        fail("no shared memory");
}

/* The same bytes as often, without gpushare: what the machine's bus does from one time to the next. */
static void plan_copies(const struct options *options)
{
    struct board *board = stage.board;

    if (!options->spec.repeat)
        return;
    for (unsigned i = 0; i < options->sizes; i++) {
        const uint64_t bytes = count_blocks(options->gib[i] * (double)(1ull << 30));

        board->copy_bytes = bytes > board->copy_bytes ? bytes : board->copy_bytes;
    }
    board->copy_count = options->spec.turns < MAX_COPIES ? options->spec.turns : MAX_COPIES;
    board->copy_rest_ms = options->spec.quantum_ms;
}

static int run_role(char **argv)
{
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, BOARD_FD, 0);

    if (board == MAP_FAILED)
        return -1;
    if (strcmp(argv[1], "--ceiling") == 0)
        return role_ceiling(board, strtoull(argv[2], NULL, 10));
    if (strcmp(argv[1], "--ballast") == 0)
        return role_ballast(board, strtoull(argv[2], NULL, 10));
    return role_program(board, (unsigned)strtoul(argv[2], NULL, 10));
}

static void find_lockd(void)
{
    static char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", stage.self, sizeof stage.self - 1);

    if (length > 0)
        stage.self[length] = '\0';
    if (stage.lockd == NULL) { /* beside it in the build tree */
        snprintf(path, sizeof path, "%.*s/../lockd/gpushare-lockd",
                 (int)(strrchr(stage.self, '/') - stage.self), stage.self);
        stage.lockd = path;
    }
}

static int run_all(const struct options *options)
{
    static struct result results[MAX_CASES];
    struct spec cases[MAX_CASES];
    const unsigned count = make_cases(options, cases);
    const uint64_t start = now_ns();
    unsigned done = 0, wrong = 0;

    for (unsigned i = 0; i < count; i++) {
        if (!has_room(&cases[i]))
            continue;
        run_case(&cases[i], &results[done]);
        print(&results[done]);
        wrong += results[done++].wrong;
        /* after each: a run that is cut off has measured something */
        if (options->json != NULL && write_json(options->json, results, done) != 0)
            return 1;
    }
    printf("%.0f s\n", (double)(now_ns() - start) / 1e9);
    remove_folder();
    if (done == 0)
        fail("no case was run");
    return wrong != 0;
}

int main(int argc, char **argv)
{
    struct options options = {
        .spec = {.turns = 8, .quantum_ms = 400, .dirty_of = 1, .share = 1, .hand_over = "yes"}};
    double largest;

    if (argc == 3 && (strcmp(argv[1], "--ceiling") == 0 || strcmp(argv[1], "--ballast") == 0 ||
                      strcmp(argv[1], "--program") == 0))
        return run_role(argv);
    if (!read_options(argc, argv, &options)) {
        fprintf(stderr,
                "usage: handoff_bench [--all] [--gib N,N...] [--dirty-of N] [--share S]\n"
                "           [--turns N | --repeat N] [--quantum MS] [--full] [--equal] [--own] "
                "[--hand-over] "
                "[--host SIZE] "
                "[--json FILE] [--lockd PATH]\n");
        return 2;
    }
    find_lockd();
    snprintf(stage.folder, sizeof stage.folder, "%.70s/gpushare-handoff-XXXXXX",
             getenv("TMPDIR") != NULL ? getenv("TMPDIR") : "/tmp");
    if (mkdtemp(stage.folder) == NULL) {
        perror(stage.folder);
        return 1;
    }
    make_board();
    plan_copies(&options);
    largest = options.gib[0] < 4 ? options.gib[0] : 4;
    measure_ceiling((uint64_t)(largest * (double)(1ull << 30)));
    return run_all(&options);
}

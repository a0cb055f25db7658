/* SPDX-License-Identifier: Apache-2.0
 *
 * handoff_figures.c: what handoff_bench makes of the times that the programs noted, and how it
 * is told. Reads stage, changes only the results it is given.
 */
#include "bench/handoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The goals. */
#define DUPLEX_PART    0.95  /* of the duplex rate, at least */
#define FIRST_PART     0.95  /* ... by the first hand-off of a run on its own */
#define WORST_PART     0.93  /* ... and by each */
#define ONE_WAY_PART   0.97  /* of the rate of one direction, at least */
#define EMPTY_S        0.001 /* at most */
#define UNCHANGED_PART 0.6   /* of the time when all is changed, at most: nine of ten are not */
#define EQUAL_PART     0.2   /* of that time, at most: the other program has the same bytes */
#define MOVED_PART     1.02  /* of the overflow, at most */

static int by_length(const void *a, const void *b)
{
    const struct hand_off *x = a, *y = b;

    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static int by_time(const void *a, const void *b)
{
    const struct hand_off *x = a, *y = b;

    return (x->at > y->at) - (x->at < y->at);
}

/* From the last work of `from` to the first of `to`: for each gap of `to`, the gap of `from`
 * that begins within it and ends later. */
static unsigned hand_offs(const struct side *from, const struct side *to, struct hand_off *all)
{
    unsigned count = 0;

    for (uint32_t i = 0; i < to->gap_count; i++)
        for (uint32_t k = 0; k < from->gap_count; k++) {
            const struct gap *a = &from->gaps[k], *b = &to->gaps[i];

            if (a->from > b->from && a->from < b->to && a->to > b->to &&
                b->to - b->from > stage.board->turn_gap)
                all[count++] = (struct hand_off){a->from, (double)(b->to - a->from) / 1e9};
        }
    return count;
}

void judge(struct result *result)
{
    struct hand_off *all = calloc((size_t)2 * MAX_GAPS, sizeof *all);
    const struct side *side = stage.board->side;
    unsigned count;

    if (all == NULL)
        fail("out of memory");
    count = hand_offs(&side[0], &side[1], all);
    count += hand_offs(&side[1], &side[0], all + count);
    result->switches = count;
    if (count == 0)
        fail("no hand-off has happened");
    qsort(all, count, sizeof all[0], by_length);
    result->median_s = all[count / 2].seconds;
    result->slowest_s = all[count - 1].seconds;
    qsort(all, count, sizeof all[0], by_time);
    result->hand_offs = all;
}

/* Of the duplex rate. */
static double rate_of(const struct result *result, unsigned i)
{
    return 2 * result->overflow / result->hand_offs[i].seconds / stage.board->bus.duplex;
}

static unsigned worst_of(const struct result *result)
{
    unsigned worst = 0;

    for (unsigned i = 1; i < result->switches; i++)
        if (result->hand_offs[i].seconds > result->hand_offs[worst].seconds)
            worst = i;
    return worst;
}

static bool has_copies(const struct result *result)
{
    return result->spec.repeat && stage.board->copy_count > 0 &&
           (double)stage.board->copy_bytes <= result->overflow;
}

/* Of the plain copies that were timed, both ways: bytes a second. */
static double worst_copies(void)
{
    const struct board *board = stage.board;
    double slowest = 0;

    for (unsigned i = 0; i < board->copy_count; i++)
        slowest = board->copies_s[i] > slowest ? board->copies_s[i] : slowest;
    return 2 * (double)board->copy_bytes / slowest;
}

void print(const struct result *result)
{
    const struct bus *bus = &stage.board->bus;
    const double bytes = result->overflow;

    printf("%s, %g GiB: hand-off %.4f s (median of %u, slowest %.4f)", result->spec.name,
           result->spec.gib, result->median_s, result->switches, result->slowest_s);
    if (bytes > 0)
        printf(
            " = %.1f GB/s, %.3f of duplex %.1f; moved out a turn %.4f of the %.2f GiB that do "
            "not fit",
            2 * bytes / result->median_s / 1e9, 2 * bytes / result->median_s / bus->duplex,
            bus->duplex / 1e9, result->moved_out / bytes, bytes / (double)(1ull << 30));
    if (result->spec.equal)
        printf("; %.4f of them found in the other program's memory", result->found / bytes);
    if (result->spec.one_way)
        printf("\n  out alone %.4f s = %.1f GB/s, %.3f of %.1f; in alone %.4f s = %.1f GB/s, "
               "%.3f of %.1f; in, the other being freed, %.4f s",
               result->out_s, bytes / result->out_s / 1e9, bytes / result->out_s / bus->d2h,
               bus->d2h / 1e9, result->in_s, bytes / result->in_s / 1e9,
               bytes / result->in_s / bus->h2d, bus->h2d / 1e9, result->in_freed_s);
    if (result->spec.repeat && bytes > 0)
        printf("\n  the first %.3f of duplex, the worst (number %u of %u) %.3f",
               rate_of(result, 0), worst_of(result) + 1, result->switches,
               rate_of(result, worst_of(result)));
    if (has_copies(result))
        printf("; the worst of %u plain copies of %.2f GiB %.3f", stage.board->copy_count,
               (double)stage.board->copy_bytes / (double)(1ull << 30),
               worst_copies() / bus->duplex);
    if (result->wrong > 0)
        printf("\n  WRONG: %u blocks are not what was written", result->wrong);
    putchar('\n');
    fflush(stdout);
}

/* --- JSON --- */

struct table {
    FILE *file;
    bool more; /* rows are there already */
};

static void add_row(struct table *table, const char *name, double gib, double value,
                    const char *unit, double ceiling, const char *against, bool met)
{
    fprintf(table->file,
            "%s\n  {\"name\": \"%s, %g GiB\", \"value\": %.6g, \"unit\": \"%s\", "
            "\"ceiling\": %.6g, \"ratio\": %.4f, \"against\": \"%s\", \"met\": %s}",
            table->more ? "," : "", name, gib, value, unit, ceiling, value / ceiling, against,
            met ? "true" : "false");
    table->more = true;
}

/* Without a goal. */
static void add_time(struct table *table, const struct result *result, double ceiling,
                     const char *against)
{
    fprintf(table->file,
            "%s\n  {\"name\": \"%s, %g GiB\", \"value\": %.6g, \"unit\": \"s\", "
            "\"ceiling\": %.6g, \"ratio\": %.4f, \"against\": \"%s\", \"other\": true}",
            table->more ? "," : "", result->spec.name, result->spec.gib, result->median_s,
            ceiling, result->median_s / ceiling, against);
    table->more = true;
}

static void rate_row(struct table *table, const char *name, double gib, double rate,
                     double ceiling, double part)
{
    add_row(table, name, gib, rate / 1e9, "GB/s", ceiling / 1e9, "bus", rate >= part * ceiling);
}

/* The case with everything changed in the same run, or NULL. */
static const struct result *all_changed(const struct result *results, unsigned count,
                                        double gib)
{
    for (unsigned i = 0; i < count; i++)
        if (results[i].spec.one_way && results[i].spec.gib == gib)
            return &results[i];
    return NULL;
}

static void rows_of(struct table *table, const struct result *result, const struct result *full)
{
    const struct bus *bus = &stage.board->bus;
    const double gib = result->spec.gib, bytes = result->overflow;

    if (result->spec.exclusive) {
        add_row(table, "empty hand-off", gib, result->median_s * 1e3, "ms", EMPTY_S * 1e3,
                "at most", result->median_s <= EMPTY_S);
        return;
    }
    if (result->spec.dirty_of == 0 && full != NULL &&
        (!result->spec.equal || strcmp(result->spec.hand_over, "no") == 0))
        add_time(table, result, full->median_s, "all written"); /* what there is without */
    else if (result->spec.equal && result->spec.dirty_of == 0 && full != NULL)
        add_row(table, result->spec.name, gib, result->median_s, "s",
                EQUAL_PART * full->median_s, "at most",
                result->median_s <= EQUAL_PART * full->median_s);
    else if (result->spec.dirty_of != 1 && full != NULL)
        add_row(table, result->spec.name, gib, result->median_s, "s",
                UNCHANGED_PART * full->median_s, "at most",
                result->median_s <= UNCHANGED_PART * full->median_s);
    else
        rate_row(table, result->spec.name, gib, 2 * bytes / result->median_s, bus->duplex,
                 DUPLEX_PART);
    if (result->spec.repeat) {
        rate_row(table, "the first hand-off", gib, rate_of(result, 0) * bus->duplex,
                 bus->duplex, FIRST_PART);
        rate_row(table, "the worst hand-off", gib,
                 rate_of(result, worst_of(result)) * bus->duplex, bus->duplex, WORST_PART);
    }
    if (has_copies(result))
        add_row(table, "the worst hand-off against the worst copies", gib,
                rate_of(result, worst_of(result)) * bus->duplex / 1e9, "GB/s",
                worst_copies() / 1e9, "copies",
                rate_of(result, worst_of(result)) * bus->duplex >= WORST_PART * worst_copies());
    if (result->spec.share < 1)
        add_row(table, "moved out a turn", gib, result->moved_out / 1e9, "GB",
                MOVED_PART * bytes / 1e9, "at most", result->moved_out <= MOVED_PART * bytes);
    if (result->spec.one_way) {
        rate_row(table, "out alone", gib, bytes / result->out_s, bus->d2h, ONE_WAY_PART);
        rate_row(table, "in alone", gib, bytes / result->in_s, bus->h2d, ONE_WAY_PART);
    }
}

static void print_raw(FILE *file, const struct result *result)
{
    const struct spec *spec = &result->spec;

    fprintf(file,
            "  {\"name\": \"%s\", \"gib\": %g, \"share\": %g, \"dirty_of\": %u, "
            "\"exclusive\": %s, \"hand_over\": %s, \"quantum_ms\": %u, \"overflow_bytes\": "
            "%.0f, \"median_s\": "
            "%.6f, \"slowest_s\": %.6f, \"switches\": %u, ",
            spec->name, spec->gib, spec->share, spec->dirty_of,
            spec->exclusive ? "true" : "false",
            strcmp(spec->hand_over, "no") != 0 ? "true" : "false", spec->quantum_ms,
            result->overflow, result->median_s, result->slowest_s, result->switches);
    if (spec->one_way)
        fprintf(file, "\"out_s\": %.6f, \"in_s\": %.6f, \"in_freed_s\": %.6f, ", result->out_s,
                result->in_s, result->in_freed_s);
    fputs("\"hand_offs_s\": [", file);
    for (unsigned i = 0; i < result->switches; i++)
        fprintf(file, "%s%.4f", i == 0 ? "" : ", ", result->hand_offs[i].seconds);
    fputs("], \"hand_offs_of_duplex\": [", file);
    for (unsigned i = 0; i < result->switches && result->overflow > 0; i++)
        fprintf(file, "%s%.4f", i == 0 ? "" : ", ", rate_of(result, i));
    fprintf(
        file,
        "], \"moved_out_a_turn\": %.0f, \"equal\": %s, \"own\": %s, \"found_a_turn\": %.0f, "
        "\"wrong_blocks\": %u}",
        result->moved_out, spec->equal ? "true" : "false", spec->own ? "true" : "false",
        result->found, result->wrong);
}

int write_json(const char *path, const struct result *results, unsigned count)
{
    const struct board *board = stage.board;
    struct table table = {.file = fopen(path, "w")};
    const time_t now = time(NULL);
    char date[16];

    if (table.file == NULL) {
        perror(path);
        return -1;
    }
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    fprintf(table.file,
            "{\"benchmark\": \"handoff\", \"date\": \"%s\", \"card\": \"%s\", \"driver\": %d, "
            "\"full\": %s,\n \"bus\": {\"h2d\": %.0f, \"d2h\": %.0f, \"duplex\": %.0f},\n "
            "\"rows\": [",
            date, board->card, board->driver, stage.full ? "true" : "false", board->bus.h2d,
            board->bus.d2h, board->bus.duplex);
    for (unsigned i = 0; i < count; i++)
        rows_of(&table, &results[i], all_changed(results, count, results[i].spec.gib));
    fprintf(table.file, "\n ],\n \"copies_s\": [");
    for (unsigned i = 0; i < board->copy_count; i++)
        fprintf(table.file, "%s%.4f", i == 0 ? "" : ", ", board->copies_s[i]);
    fprintf(table.file, "],\n \"handoffs\": [\n");
    for (unsigned i = 0; i < count; i++) {
        print_raw(table.file, &results[i]);
        fputs(i + 1 < count ? ",\n" : "\n", table.file);
    }
    fprintf(table.file, " ]}\n");
    return fclose(table.file);
}

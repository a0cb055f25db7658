/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: gpushare-sim: reads a scenario, lets it happen, prints what came of it.
 */
#include "bench/sim/figures.h"
#include "common/size.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum status { MET = 0, NOT_MET = 1, USAGE = 2 };

struct options {
    const char *scenario, *replay;
    const char *sets[64];
    size_t set_count;
    uint64_t memory;
    bool json, programs;
};

static void print_help(void)
{
    printf(
        "usage: gpushare-sim [options] SCENARIO\n"
        "Simulate programs that share cards through gpushare-lockd's own scheduler, under a\n"
        "virtual clock. Exit status: 0, 1 when an expectation of the scenario is not met, 2\n"
        "for a mistake in the call or the scenario.\n\n"
        "  --set SECTION.KEY=VALUE  set a key of the scenario; program.KEY: of all programs\n"
        "  --replay TRACE           add the programs of a recorded trace (JSON)\n"
        "  --memory SIZE            give each program of the trace that much memory\n"
        "  --programs               print a line for each program, not for each kind\n"
        "  --json                   print everything as JSON\n"
        "  -h, --help               show this help\n"
        "  -V, --version            show the release\n\n"
        "A scenario has these sections and keys:\n");
    sim_scenario_help(stdout);
}

/* Negative: go on; else the exit status. */
static int parse_arguments(int argc, char **argv, struct options *options)
{
    static const struct option table[] = {
        {"set", required_argument, NULL, 's'},    {"replay", required_argument, NULL, 'r'},
        {"memory", required_argument, NULL, 'm'}, {"programs", no_argument, NULL, 'p'},
        {"json", no_argument, NULL, 'j'},         {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0}};
    int option;

    while ((option = getopt_long(argc, argv, "hV", table, NULL)) != -1) {
        if (option == 's' && options->set_count < 64) {
            options->sets[options->set_count++] = optarg;
        } else if (option == 'r') {
            options->replay = optarg;
        } else if (option == 'm' && gs_size_parse(optarg, &options->memory) == 0 &&
                   options->memory < 1000000000000000) {
            continue;
        } else if (option == 'p') {
            options->programs = true;
        } else if (option == 'j') {
            options->json = true;
        } else if (option == 'h') {
            print_help();
            return MET;
        } else if (option == 'V') {
            printf("gpushare-sim %s\n", GS_VERSION);
            return MET;
        } else {
            if (option == 'm')
                fprintf(stderr, "gpushare-sim: --memory %s: not a size; write it as 12GiB\n",
                        optarg);
            if (option == 's')
                fprintf(stderr, "gpushare-sim: more than 64 --set; write a scenario file\n");
            return USAGE;
        }
    }
    if (optind != argc - 1) {
        fprintf(stderr, "gpushare-sim: give one scenario file; see --help\n");
        return USAGE;
    }
    options->scenario = argv[optind];
    return -1;
}

static int prepare_scenario(const struct options *options, struct sim_scenario *scenario,
                            struct gs_err *err)
{
    int error = sim_scenario_read(scenario, options->scenario, err);

    if (error == 0 && options->replay != NULL)
        error = sim_replay(scenario, options->replay, options->memory, err);
    for (size_t i = 0; i < options->set_count && error == 0; i++)
        error = sim_scenario_set(scenario, options->sets[i], err);
    return error != 0 ? error : sim_scenario_check(scenario, err);
}

static double real_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int simulate_scenario(const struct options *options, const struct sim_scenario *scenario)
{
    struct sim_world *world = sim_world_new(scenario);
    const double began = real_seconds();
    struct sim_totals totals;
    int status = MET;

    sim_world_run(world);
    totals = sim_totals(world);
    if (options->json)
        status = sim_print_json(stdout, world, &totals) == 0 ? MET : USAGE;
    else
        sim_print(stdout, world, &totals, real_seconds() - began, options->programs);
    if (world->failure[0] != '\0') {
        fprintf(stderr, "gpushare-sim: %s: %s\n", scenario->path, world->failure);
        status = NOT_MET;
    }
    if (sim_expect_check(scenario, &totals, options->json ? NULL : stdout) != 0 &&
        status == MET)
        status = NOT_MET;
    sim_world_free(world);
    return status;
}

int main(int argc, char **argv)
{
    struct sim_scenario *scenario = sim_new(1, sizeof *scenario);
    struct options options = {0};
    struct gs_err err = {0};
    int status = parse_arguments(argc, argv, &options);

    if (status < 0) {
        sim_scenario_init(scenario);
        if (prepare_scenario(&options, scenario, &err) != 0) {
            fprintf(stderr, "gpushare-sim: %s\n", err.text);
            status = USAGE;
        } else {
            status = simulate_scenario(&options, scenario);
        }
        sim_scenario_deinit(scenario);
    }
    free(scenario);
    return status;
}

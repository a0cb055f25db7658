/* SPDX-License-Identifier: Apache-2.0
 *
 * alloc_bench.c: how long cuMemAlloc and cuMemFree take through libgpushare, against the same
 * driver's own.
 *
 * Both sides run in one process, in turns, on one thread; medians count. Two ways of using
 * memory: "again" allocates and frees one piece over and over (what was freed is used again),
 * "fresh" allocates many pieces when nothing was freed for a while, and then frees them all.
 * The driver is whatever libcuda.so.1 is found: a card, or the simulated one (whose own times
 * mean nothing).
 *
 *   alloc_bench [--rounds N] [--fresh N] [--json FILE] [--limit RATIO] [--most SIZE]
 *
 * --fresh: rounds of "fresh", of some seconds each; 0 leaves it out.
 * --limit: exit 1 if any ratio of "again" is higher. --most: the largest piece to try.
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cudaTypedefs.h>

#include "bench/median.h"
#include "common/size.h"
#include "runtime/base/libc_symbols.h"

#define MAX_SAMPLES   4096
#define AGAIN         20 /* times in a round */
#define FRESH_AFTER_S 3

struct options {
    unsigned rounds, fresh;
    const char *json;
    double limit;
    uint64_t most;
};

struct side {
    PFN_cuMemAlloc_v3020 alloc;
    PFN_cuMemFree_v3020 release;
};

struct samples {
    double alloc[MAX_SAMPLES], release[MAX_SAMPLES];
    unsigned count;
};

struct times {
    double alloc, release; /* medians, microseconds */
};

struct card {
    char name[64];
    int driver;
    size_t free_bytes;
};

struct result {
    uint64_t bytes;
    struct times own[2], routed[2]; /* again, fresh */
};

static const char *const ways[] = {"again", "fresh"};

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

/* count pieces one after another, then their frees */
static int run_side(const struct side *side, uint64_t bytes, unsigned count,
                    struct samples *samples)
{
    static CUdeviceptr pieces[MAX_SAMPLES];
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < count; i++) {
        const double start = now_us();

        result = side->alloc(&pieces[i], bytes);
        if (result != CUDA_SUCCESS) {
            fprintf(stderr, "alloc_bench: piece %u of %llu bytes: CUresult %d\n", i,
                    (unsigned long long)bytes, (int)result);
            count = i;
            break;
        }
        if (samples->count + i < MAX_SAMPLES)
            samples->alloc[samples->count + i] = now_us() - start;
    }
    for (unsigned i = 0; i < count; i++) {
        const double start = now_us();
        const CUresult freed = side->release(pieces[i]);

        if (freed != CUDA_SUCCESS)
            result = freed;
        if (samples->count + i < MAX_SAMPLES)
            samples->release[samples->count + i] = now_us() - start;
    }
    samples->count += count;
    if (samples->count > MAX_SAMPLES)
        samples->count = MAX_SAMPLES;
    return result == CUDA_SUCCESS ? 0 : -1;
}

static void find_medians(struct samples *own, struct samples *routed, struct result *result,
                         unsigned way)
{
    result->own[way] =
        (struct times){median_of(own->alloc, own->count), median_of(own->release, own->count)};
    result->routed[way] = (struct times){median_of(routed->alloc, routed->count),
                                         median_of(routed->release, routed->count)};
}

static int measure_again(const struct side *const *sides, unsigned rounds,
                         struct result *result)
{
    static struct samples samples[2];

    memset(samples, 0, sizeof samples);
    for (unsigned round = 0; round < rounds + 1; round++) {
        if (round == 1) /* the first one is for warming up */
            samples[0].count = samples[1].count = 0;
        for (unsigned i = 0; i < 2; i++)
            for (unsigned j = 0; j < AGAIN; j++)
                if (run_side(sides[(i + round) % 2], result->bytes, 1,
                             &samples[(i + round) % 2]) != 0)
                    return -1;
    }
    find_medians(&samples[0], &samples[1], result, 0);
    return 0;
}

static int measure_fresh(const struct side *const *sides, unsigned rounds, unsigned count,
                         struct result *result)
{
    const struct timespec pause = {FRESH_AFTER_S, 0};
    static struct samples samples[2];

    memset(samples, 0, sizeof samples);
    for (unsigned round = 0; round < rounds; round++) {
        nanosleep(&pause, NULL); /* what was kept has gone (runtime/memory/idle_ranges.c) */
        for (unsigned i = 0; i < 2; i++)
            if (run_side(sides[(i + round) % 2], result->bytes, count,
                         &samples[(i + round) % 2]) != 0)
                return -1;
    }
    find_medians(&samples[0], &samples[1], result, 1);
    return 0;
}

static double compare_sides(const struct result *result, unsigned way)
{
    return (result->routed[way].alloc + result->routed[way].release) /
           (result->own[way].alloc + result->own[way].release);
}

static void print_results(const struct result *result, unsigned way_count)
{
    for (unsigned way = 0; way < way_count; way++) {
        const struct times *own = &result->own[way], *routed = &result->routed[way];

        printf("%10llu bytes, %s: alloc %.2f us, driver's own %.2f us, ratio %.2f; "
               "free %.2f us, %.2f us, ratio %.2f; both %.2f\n",
               (unsigned long long)result->bytes, ways[way], routed->alloc, own->alloc,
               routed->alloc / own->alloc, routed->release, own->release,
               routed->release / own->release, compare_sides(result, way));
    }
}

static int write_json(const struct options *options, const struct card *card,
                      const struct result *results, unsigned count)
{
    const time_t now = time(NULL);
    char date[16];
    FILE *file;

    if (options->json == NULL)
        return 0;
    file = fopen(options->json, "w");
    if (file == NULL) {
        perror(options->json);
        return -1;
    }
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    fprintf(file,
            "{\"benchmark\": \"alloc\", \"date\": \"%s\", \"card\": \"%s\", \"driver\": %d, "
            "\"rounds\": %u, \"results\": [",
            date, card->name, card->driver, options->rounds);
    for (unsigned i = 0; i < count; i++)
        for (unsigned way = 0; way < (options->fresh > 0 ? 2 : 1); way++)
            fprintf(file,
                    "%s\n  {\"bytes\": %llu, \"way\": \"%s\", \"alloc_us\": %.3f, "
                    "\"own_alloc_us\": %.3f, \"free_us\": %.3f, \"own_free_us\": %.3f, "
                    "\"alloc_ratio\": %.4f, \"ratio\": %.4f}",
                    i + way == 0 ? "" : ",", (unsigned long long)results[i].bytes, ways[way],
                    results[i].routed[way].alloc, results[i].own[way].alloc,
                    results[i].routed[way].release, results[i].own[way].release,
                    results[i].routed[way].alloc / results[i].own[way].alloc,
                    compare_sides(&results[i], way));
    fprintf(file, "\n]}\n");
    return fclose(file);
}

static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (value == NULL)
            return -1;
        if (strcmp(argv[i], "--rounds") == 0)
            options->rounds = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--fresh") == 0)
            options->fresh = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            options->json = value;
        else if (strcmp(argv[i], "--limit") == 0)
            options->limit = strtod(value, NULL);
        else if (strcmp(argv[i], "--most") != 0 || gs_size_parse(value, &options->most) != 0)
            return -1;
    }
    return options->rounds > 0 ? 0 : -1;
}

/* The usual way of a driver program, so that libgpushare's door is the one that answers. */
static int prepare_card(void *driver, struct card *card)
{
    PFN_cuInit_v2000 init = (PFN_cuInit_v2000)dlsym(driver, "cuInit");
    PFN_cuDevicePrimaryCtxRetain_v7000 retain =
        (PFN_cuDevicePrimaryCtxRetain_v7000)dlsym(driver, "cuDevicePrimaryCtxRetain");
    PFN_cuCtxSetCurrent_v4000 set_current =
        (PFN_cuCtxSetCurrent_v4000)dlsym(driver, "cuCtxSetCurrent");
    PFN_cuMemGetInfo_v3020 info = (PFN_cuMemGetInfo_v3020)dlsym(driver, "cuMemGetInfo_v2");
    PFN_cuDeviceGetName_v2000 name =
        (PFN_cuDeviceGetName_v2000)dlsym(driver, "cuDeviceGetName");
    PFN_cuDriverGetVersion_v2020 version =
        (PFN_cuDriverGetVersion_v2020)dlsym(driver, "cuDriverGetVersion");
    CUcontext context;
    size_t total;

    if (name == NULL || version == NULL || init == NULL || retain == NULL ||
        set_current == NULL || info == NULL)
        return -1;
    return init(0) == CUDA_SUCCESS && retain(&context, 0) == CUDA_SUCCESS &&
                   set_current(context) == CUDA_SUCCESS &&
                   info(&card->free_bytes, &total) == CUDA_SUCCESS &&
                   name(card->name, sizeof card->name, 0) == CUDA_SUCCESS &&
                   version(&card->driver) == CUDA_SUCCESS
               ? 0
               : -1;
}

int main(int argc, char **argv)
{
    static const uint64_t sizes[] = {256, 2 << 20, 64 << 20, 1 << 30};
    struct options options = {.rounds = 21, .fresh = 3, .most = UINT64_MAX};
    struct result results[sizeof sizes / sizeof sizes[0]];
    struct side own, routed;
    const struct side *const sides[] = {&own, &routed};
    struct card card;
    unsigned count = 0;
    int status = 0;
    void *driver;

    if (read_options(argc, argv, &options) != 0) {
        fprintf(stderr,
                "usage: alloc_bench [--rounds N] [--fresh N] [--json FILE] [--limit RATIO] "
                "[--most SIZE]\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL || prepare_card(driver, &card) != 0) {
        fprintf(stderr, "alloc_bench: no usable libcuda.so.1 (%s)\n",
                driver == NULL ? dlerror() : "no context");
        return 77;
    }
    gs_libc_symbols_init();
    routed.alloc = (PFN_cuMemAlloc_v3020)dlsym(driver, "cuMemAlloc_v2");
    routed.release = (PFN_cuMemFree_v3020)dlsym(driver, "cuMemFree_v2");
    own.alloc = (PFN_cuMemAlloc_v3020)gs_libc_dlsym(driver, "cuMemAlloc_v2");
    own.release = (PFN_cuMemFree_v3020)gs_libc_dlsym(driver, "cuMemFree_v2");
    if (routed.alloc == own.alloc) {
        fprintf(stderr, "alloc_bench: not routed: libgpushare.so.1 is not in front\n");
        return 1;
    }
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const uint64_t fit = card.free_bytes / 4 / sizes[i];
        const unsigned pieces = fit < 64 ? (unsigned)fit : 64;

        if (pieces == 0 || sizes[i] > options.most) {
            printf("%10llu bytes: left out, too large here\n", (unsigned long long)sizes[i]);
            continue;
        }
        results[count].bytes = sizes[i];
        if (measure_again(sides, options.rounds, &results[count]) != 0 ||
            (options.fresh > 0 &&
             measure_fresh(sides, options.fresh, pieces, &results[count]) != 0))
            return 1;
        print_results(&results[count], options.fresh > 0 ? 2 : 1);
        if (options.limit > 0 && compare_sides(&results[count], 0) > options.limit)
            status = 1;
        count++;
    }
    return write_json(&options, &card, results, count) != 0 ? 1 : status;
}

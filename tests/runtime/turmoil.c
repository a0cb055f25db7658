/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil.c: threads with streams that allocate, free, hand to each other and use device memory
 * at random, with work under way all the time; each kernel checks what it reads.
 *
 *   turmoil [--seeds N] [--first S] [--seconds T] [--threads T] [--steps N] [--memory MIB]
 *           [--kernel-us N] [--without NAME,...] [--progress FILE]
 *
 * A seed says how many threads there are, which streams, sizes and ways of memory they use, and
 * what they do; not how their calls interleave. A thread's life is a number of steps; what it
 * had then goes to the others, and another thread comes. FILE: 8 bytes that count the steps. Runs on the simulated card and on a
 * real one, beside others whose memory this one's is exchanged for (test_turmoil.py,
 * tests/gpu/run.sh). Exit 0 and a line "ok ..."; 1, the newest steps and a line for the
 * first wrong word or failed call; 2 usage.
 */
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/turmoil.h"

struct turmoil_config turmoil_config = {
    .first = 1, .seeds = 1, .memory = (size_t)48 << 20, .without = ""};

static uint64_t read_clock(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- options --- */

static uint64_t unread, *progress = &unread;

static bool map_progress(const char *path)
{
    const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *map = MAP_FAILED;

    if (file < 0)
        return false;
    if (ftruncate(file, sizeof *progress) == 0)
        map = mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED)
        return false;
    progress = map;
    return true;
}

static bool read_options(int argc, char **argv)
{
    static const struct option options[] = {
        {"seeds", 1, NULL, 'n'},   {"first", 1, NULL, 'f'},     {"seconds", 1, NULL, 's'},
        {"threads", 1, NULL, 't'}, {"steps", 1, NULL, 'k'},     {"memory", 1, NULL, 'm'},
        {"without", 1, NULL, 'w'}, {"kernel-us", 1, NULL, 'u'}, {"progress", 1, NULL, 'p'},
        {NULL, 0, NULL, 0}};
    struct turmoil_config *config = &turmoil_config;
    int option;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 'n':
            config->seeds = strtoull(optarg, NULL, 10);
            break;
        case 'f':
            config->first = strtoull(optarg, NULL, 10);
            break;
        case 's':
            config->seconds = strtod(optarg, NULL);
            break;
        case 't':
            config->threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'k':
            config->steps = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'm':
            config->memory = (size_t)strtoull(optarg, NULL, 10) << 20;
            break;
        case 'u':
            config->kernel_us = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'w':
            config->without = optarg;
            break;
        case 'p':
            if (!map_progress(optarg))
                return false;
            break;
        default:
            return false;
        }
    return optind == argc && config->threads <= TURMOIL_THREADS && config->memory != 0;
}

/* --- seeds --- */

static struct turmoil_shape draw_shape(uint64_t seed)
{
    static const unsigned threads[] = {1, 2, 2, 3, 4, 4, 6, 8};
    static const uint64_t longest[] = {100000, 400000, 1000000, 3000000};
    uint64_t random = seed * 0x2545f4914f6cdd1du;
    struct turmoil_shape shape = {.seed = seed};

    shape.threads = threads[random_below(&random, 8)];
    shape.lives = 1 + (unsigned)random_below(&random, 3);
    shape.steps = 30 + (unsigned)random_below(&random, 60);
    shape.sizes = (unsigned)random_below(&random, 6);
    shape.ways = 1 + (unsigned)random_below(&random, (1u << TURMOIL_WAYS) - 1);
    shape.longest = longest[random_below(&random, 4)];
    shape.graphs = random_below(&random, 2) == 0;
    shape.default_ones = random_below(&random, 2) == 0;
    if (turmoil_config.threads != 0)
        shape.threads = turmoil_config.threads;
    if (turmoil_config.steps != 0)
        shape.steps = turmoil_config.steps;
    if (turmoil_config.kernel_us != 0)
        shape.longest = turmoil_config.kernel_us * 1000ull;
    return shape;
}

static void *live_once(void *argument)
{
    struct turmoil_thread *thread = argument;

    turmoil_thread_enter(thread->shape->graphs);
    turmoil_streams_open(thread);
    for (unsigned i = 0; i < thread->shape->steps; i++) {
        turmoil_step(thread);
        __atomic_fetch_add(progress, 1, __ATOMIC_RELAXED);
    }
    turmoil_graphs_drop(thread, NULL);
    turmoil_hand_back_all(thread);
    turmoil_streams_close(thread);
    return NULL;
}

/* Lives follow each other, without a gap in which nothing runs: the others do not wait. */
static void *live_on(void *argument)
{
    struct turmoil_thread *thread = argument;

    for (unsigned life = 0; life < thread->shape->lives; life++) {
        pthread_t id;

        if (pthread_create(&id, NULL, live_once, thread) != 0)
            turmoil_fail("turmoil: no thread can be made");
        pthread_join(id, NULL);
    }
    return NULL;
}

static uint64_t run_seed(uint64_t seed)
{
    const struct turmoil_shape shape = draw_shape(seed);
    struct turmoil_thread *threads = calloc(TURMOIL_THREADS + 1, sizeof *threads);
    struct turmoil_thread *own = &threads[TURMOIL_THREADS];
    pthread_t id[TURMOIL_THREADS];
    uint64_t steps = 0;

    if (threads == NULL)
        turmoil_fail("turmoil: no memory");
    for (unsigned i = 0; i <= TURMOIL_THREADS; i++)
        threads[i] =
            (struct turmoil_thread){.shape = &shape, .number = i, .random = seed * 1000003 + i};
    turmoil_thread_enter(false);
    turmoil_streams_open(own);
    turmoil_pools_open(own);
    for (unsigned i = 0; i < shape.threads; i++)
        if (pthread_create(&id[i], NULL, live_on, &threads[i]) != 0)
            turmoil_fail("turmoil: no thread can be made");
    for (unsigned i = 0; i < shape.threads; i++) {
        pthread_join(id[i], NULL);
        steps += threads[i].step;
    }
    turmoil_free_rest(own);
    TURMOIL_MUST(own, cuCtxSynchronize());
    turmoil_look();
    turmoil_pools_close(own);
    turmoil_streams_close(own);
    free(threads);
    return steps;
}

int main(int argc, char **argv)
{
    uint64_t steps = 0, done = 0, began;

    if (!read_options(argc, argv)) {
        fprintf(stderr,
                "usage: turmoil [--seeds N] [--first S] [--seconds T] [--threads 1..%d] "
                "[--steps N] [--memory MIB] [--kernel-us N] [--without NAME,...] "
                "[--progress FILE]\n",
                TURMOIL_THREADS);
        return 2;
    }
    turmoil_card_open();
    began = read_clock();
    for (; done < turmoil_config.seeds; done++) {
        if (turmoil_config.seconds != 0 &&
            (double)(read_clock() - began) >= turmoil_config.seconds * 1e9)
            break;
        steps += run_seed(turmoil_config.first + done);
    }
    printf("ok first=%llu seeds=%llu steps=%llu seconds=%.1f\n",
           (unsigned long long)turmoil_config.first, (unsigned long long)done,
           (unsigned long long)steps, (double)(read_clock() - began) / 1e9);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * soak.c: a program that uses device memory in every way at random and knows what every byte
 * must be.
 *
 *   soak [--seed S] [--seconds N] [--threads T] [--memory SIZE] [--largest SIZE] [--faulty]
 *        [--devices D] [--pause MS] [--alike]
 *
 * Run several beside each other on a small card, so that their memory moves all the time
 * (test_soak.py). Linked with libgpushare first, as gpushare-cc does. Exit 0 and one line "ok ...";
 * 1 and a line that names seed, operation, block and byte; 2 usage. Threads: each has its own
 * stream, blocks and model, on one of the first D devices by turns; those of a device share its
 * context and --memory there. --pause: each rests for about so long after every few operations.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/size.h"
#include "tests/runtime/random.h"
#include "tests/runtime/soak.h"
#include "tests/simcuda/standin.h"

#define MAX_THREADS 16

static _Atomic(size_t) taken[SOAK_DEVICES];
static _Thread_local unsigned own_device;
static size_t share;

uint64_t soak_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

bool soak_take(size_t bytes)
{
    const size_t rounded =
        (bytes + (2u << 20) - 1) >> 21 << 21; /* as the card counts: granules of 2 MiB */

    if (atomic_fetch_add(&taken[own_device], rounded) + rounded <= share)
        return true;
    atomic_fetch_sub(&taken[own_device], rounded);
    return false;
}

void soak_give(size_t bytes)
{
    atomic_fetch_sub(&taken[own_device], (bytes + (2u << 20) - 1) >> 21 << 21);
}

bool soak_ok(struct soak_thread *thread, CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return true;
    thread->failed_calls++;
    if (thread->config->faulty)
        return false;
    fprintf(stderr, "soak[%d] seed %llu: %s: CUresult %d\n", (int)getpid(),
            (unsigned long long)thread->config->seed, what, (int)result);
    _exit(1);
}

/* --- the kernel: every byte ^= key, so that a lost or doubled launch shows
 * ------------------------------------------- */

static void run_mix(const struct simcuda_launch *launch)
{
    uint8_t *bytes = *(uint8_t **)launch->params[0];
    const uint64_t count = *(const uint64_t *)launch->params[1];
    const uint8_t key = *(const uint8_t *)launch->params[2];

    for (uint64_t i = 0; i < count; i++)
        bytes[i] ^= key;
}

static const uint32_t mix_sizes[] = {8, 8, 1};
__attribute__((visibility("default"))) const struct simcuda_kernel simcuda_kernels[] = {
    {"mix", run_mix, 3, mix_sizes}, {NULL, NULL, 0, NULL}};

/* --- start and end
 * ---------------------------------------------------------------------------------------------------
 */

struct start {
    struct soak_thread thread;
    uint64_t until;
};

static void *run_thread(void *argument)
{
    struct start *start = argument;

    own_device = start->thread.device;
    soak_run(&start->thread, start->until);
    return NULL;
}

static bool read_size(const char *text, size_t *size)
{
    uint64_t bytes;

    if (gs_size_parse(text, &bytes) != 0 || bytes == 0)
        return false;
    *size = bytes;
    return true;
}

static bool read_options(int argc, char **argv, struct soak_config *config)
{
    static const struct option options[] = {
        {"seed", 1, NULL, 's'},    {"seconds", 1, NULL, 'n'}, {"threads", 1, NULL, 't'},
        {"memory", 1, NULL, 'm'},  {"largest", 1, NULL, 'l'}, {"faulty", 0, NULL, 'f'},
        {"devices", 1, NULL, 'd'}, {"pause", 1, NULL, 'p'},   {"alike", 0, NULL, 'a'},
        {NULL, 0, NULL, 0}};
    int option;
    bool good = true;

    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1)
        switch (option) {
        case 's':
            config->seed = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            config->seconds = strtod(optarg, NULL);
            break;
        case 't':
            config->threads = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'm':
            good &= read_size(optarg, &config->memory);
            break;
        case 'l':
            good &= read_size(optarg, &config->largest);
            break;
        case 'f':
            config->faulty = true;
            break;
        case 'd':
            config->devices = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'a':
            config->alike = true;
            break;
        case 'p':
            config->pause_ms = (unsigned)strtoul(optarg, NULL, 10);
            break;
        default:
            good = false;
        }
    return good && optind == argc && config->threads >= 1 && config->threads <= MAX_THREADS &&
           config->devices >= 1 && config->devices <= SOAK_DEVICES;
}

static bool set_up(unsigned device, CUcontext *context, CUfunction *mix)
{
    CUmodule module;

    for (unsigned i = 0; i < 20; i++) /* with faults, the start may need several attempts */
        if (cuInit(0) == CUDA_SUCCESS &&
            cuDevicePrimaryCtxRetain(context, (CUdevice)device) == CUDA_SUCCESS &&
            cuCtxSetCurrent(*context) == CUDA_SUCCESS &&
            cuModuleLoadData(&module, ".version 8.0\n.target sm_90\n") == CUDA_SUCCESS &&
            cuModuleGetFunction(mix, module, "mix") == CUDA_SUCCESS)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    struct soak_config config = {.seed = 1,
                                 .seconds = 2,
                                 .threads = 2,
                                 .memory = 48u << 20,
                                 .largest = 6u << 20,
                                 .devices = 1};
    static struct start starts[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    uint64_t operations = 0, checked = 0, failed = 0;
    CUcontext context[SOAK_DEVICES];
    CUfunction mix[SOAK_DEVICES];
    size_t left = 0;

    if (!read_options(argc, argv, &config)) {
        fprintf(stderr,
                "usage: soak [--seed S] [--seconds N] [--threads 1..%d] [--memory SIZE] "
                "[--largest SIZE] "
                "[--faulty] [--devices 1..%d] [--pause MS] [--alike]\n",
                MAX_THREADS, SOAK_DEVICES);
        return 2;
    }
    share = config.memory;
    for (unsigned i = 0; i < config.devices; i++) {
        if (!set_up(i, &context[i], &mix[i])) {
            fprintf(stderr, "soak: card %u cannot be used\n", i);
            return config.faulty ? 0 : 1;
        }
    }
    for (unsigned i = 0; i < config.threads; i++) {
        starts[i].thread = (struct soak_thread){.config = &config,
                                                .device = i % config.devices,
                                                .context = context[i % config.devices],
                                                .mix = mix[i % config.devices],
                                                .random = config.seed * 1000 + i};
        starts[i].until = soak_now() + (uint64_t)(config.seconds * 1e9);
        if (pthread_create(&threads[i], NULL, run_thread, &starts[i]) != 0)
            return 1;
    }
    for (unsigned i = 0; i < config.threads; i++) {
        pthread_join(threads[i], NULL);
        operations += starts[i].thread.operations;
        checked += starts[i].thread.checked_bytes;
        failed += starts[i].thread.failed_calls;
    }
    for (unsigned i = 0; i < config.devices; i++)
        left += atomic_load(&taken[i]);
    printf("ok seed=%llu operations=%llu checked=%llu failed=%llu left=%zu\n",
           (unsigned long long)config.seed, (unsigned long long)operations,
           (unsigned long long)checked, (unsigned long long)failed, left);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * load.c: a program that computes on all of its memory, as it is told by lines on standard
 * input: what the benchmarks in bench/ run in several copies, unpatched and patched. It knows
 * nothing of gpushare. One thread.
 *
 * A kernel goes over one of SLICES slices of the memory and makes `steps` steps with each of
 * its words, so that its length is work and not time; the slices take turns. After `batch`
 * kernels the program waits for them, as a training step ends with a loss that is read.
 *
 * Each line is answered by one line of JSON; times are ns of CLOCK_MONOTONIC. At the end of
 * input it ends: exit status 0, or 1 after a CUDA error or a wrong line.
 *
 *   card                       {"card", "driver", "free", "total"}
 *   bus BYTES                  {"h2d", "d2h", "duplex"}: bytes a second of copies from registered host memory
 *   take BYTES                 allocates and fills: {}
 *   calibrate NS               a kernel alone takes about so long now: {"steps", "ns"}
 *   steps N                    of a kernel: {}
 *   batch N                    kernels that are not waited for one by one: {}
 *   phases CYCLES KERNELS NS   so often: rests NS, then so many kernels: {"from", "to"}
 *   work UNTIL                 batches until then; when each had finished: {"ends": [...]}
 *   requests KERNELS TIME...   so many kernels at each time, or when free: {"ends": [...]}
 *   check                      words that are not what they must be, of some: {"wrong"}
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/card.h"
#include "bench/load.h"

#define SLICES      16
#define GRID        1024
#define BLOCK       256
#define CHECK_WORDS 16384 /* of each slice */
#define STEPS_MAX   (1u << 22)
#define TIMED       8 /* kernels */
#define WARM        3
#define NUMBERS_MAX 8192 /* behind one command */

/* LOAD_FATBIN is the path of load_kernel.cu's fat binary, from the build. */
__asm__(".section .rodata\n.balign 64\nload_fatbin:\n.incbin \"" LOAD_FATBIN
        "\"\n.byte 0\n.previous\n");
extern const char load_fatbin[];

struct load {
    CUdevice device;
    CUfunction fill, step;
    CUstream stream;
    CUdeviceptr memory;
    uint64_t words;        /* in each slice */
    uint64_t done[SLICES]; /* steps made with it */
    uint64_t kernels;      /* launched so far */
    uint32_t steps, batch;
    uint64_t *ends; /* of the command under way */
    size_t count, room;
};

static void open_load(struct load *load)
{
    CUmodule module;

    load->device = open_device(CU_CTX_SCHED_BLOCKING_SYNC);
    check(cuModuleLoadData(&module, load_fatbin), "cuModuleLoadData");
    check(cuModuleGetFunction(&load->fill, module, "load_fill"), "load_fill");
    check(cuModuleGetFunction(&load->step, module, "load_step"), "load_step");
    check(cuStreamCreate(&load->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    load->steps = 1;
    load->batch = 8;
}

static void launch_kernel(struct load *load, CUfunction kernel, void **params)
{
    check(cuLaunchKernel(kernel, GRID, 1, 1, BLOCK, 1, 1, 0, load->stream, params, NULL),
          "cuLaunchKernel");
}

static void wait_all(struct load *load)
{
    check(cuStreamSynchronize(load->stream), "cuStreamSynchronize");
}

static CUdeviceptr find_slice(const struct load *load, uint64_t number)
{
    return load->memory + number * load->words * sizeof(uint32_t);
}

/* --- work --- */

static void take_memory(struct load *load, uint64_t bytes)
{
    load->words = bytes / SLICES / sizeof(uint32_t);
    check(cuMemAlloc(&load->memory, load->words * sizeof(uint32_t) * SLICES), "cuMemAlloc");
    for (uint64_t i = 0; i < SLICES; i++) {
        CUdeviceptr words = find_slice(load, i);
        uint64_t first = i * load->words;
        void *params[] = {&words, &load->words, &first};

        launch_kernel(load, load->fill, params);
    }
    wait_all(load);
}

static void submit_kernel(struct load *load)
{
    const uint64_t number = load->kernels++ % SLICES;
    CUdeviceptr words = find_slice(load, number);
    void *params[] = {&words, &load->words, &load->steps};

    launch_kernel(load, load->step, params);
    load->done[number] += load->steps;
}

static void run_kernels(struct load *load, uint64_t kernels)
{
    while (kernels > 0) {
        const uint64_t now = kernels < load->batch ? kernels : load->batch;

        for (uint64_t i = 0; i < now; i++)
            submit_kernel(load);
        wait_all(load);
        kernels -= now;
    }
}

static uint64_t time_kernel(struct load *load)
{
    uint64_t start;

    run_kernels(load, WARM);
    start = now_ns();
    for (unsigned i = 0; i < TIMED; i++)
        submit_kernel(load);
    wait_all(load);
    return (now_ns() - start) / TIMED;
}

/* Chooses the steps; returns how long a kernel takes then. */
static uint64_t calibrate_load(struct load *load, uint64_t aim)
{
    uint64_t took = 0;

    load->steps = 1;
    for (unsigned i = 0; i < 20; i++) { /* grows at most eightfold, then is corrected */
        double next;

        took = time_kernel(load);
        next = load->steps * (double)aim / (double)(took > 0 ? took : 1);
        if (took > aim - aim / 50 && (took < aim + aim / 50 || load->steps == 1))
            break;
        next = next > load->steps * 8.0 ? load->steps * 8.0 : next;
        next = next < 1 ? 1 : next;
        load->steps = next < STEPS_MAX ? (uint32_t)next : STEPS_MAX;
    }
    return took;
}

static void note_end(struct load *load)
{
    if (load->count == load->room) {
        load->room = load->room > 0 ? load->room * 2 : 4096;
        load->ends = realloc(load->ends, load->room * sizeof *load->ends);
        if (load->ends == NULL) {
            fputs("load: no memory for its notes\n", stderr);
            exit(1);
        }
    }
    load->ends[load->count++] = now_ns();
}

static void rest_until(uint64_t until)
{
    const uint64_t now = now_ns();

    if (until > now)
        rest_ns(until - now);
}

/* --- what it should be --- */

/* Value of a word after so many steps: by squaring the affine map. */
static uint32_t value_after(uint32_t value, uint64_t steps)
{
    uint32_t factor = LOAD_FACTOR, addend = LOAD_ADDEND;

    for (; steps > 0; steps /= 2) {
        if (steps % 2 == 1)
            value = value * factor + addend;
        addend = addend * factor + addend;
        factor *= factor;
    }
    return value;
}

static uint64_t count_wrong(struct load *load)
{
    static uint32_t words[CHECK_WORDS];
    const uint64_t count = load->words < CHECK_WORDS ? load->words : CHECK_WORDS;
    uint64_t wrong = 0;

    for (uint64_t i = 0; i < SLICES; i++) {
        const uint64_t from = (load->words - count) / SLICES * i; /* another part of each */

        check(cuMemcpyDtoH(words, find_slice(load, i) + from * sizeof *words,
                           count * sizeof *words),
              "cuMemcpyDtoH");
        for (uint64_t k = 0; k < count; k++) {
            const uint32_t first = (uint32_t)(i * load->words + from + k) * LOAD_FIRST;

            wrong += words[k] != value_after(first, load->done[i]);
        }
    }
    return wrong;
}

/* --- commands: the numbers behind the word, as many as the table says --- */

static void tell_state(void) /* that it is done */
{
    puts("{}");
}

static void print_ends(const struct load *load)
{
    printf("{\"ends\": [");
    for (size_t i = 0; i < load->count; i++)
        printf("%s%" PRIu64, i > 0 ? ", " : "", load->ends[i]);
    puts("]}");
}

static void do_card(struct load *load, const uint64_t *numbers, unsigned count)
{
    size_t free_bytes, total;
    char name[64];
    int driver;

    (void)numbers, (void)count;
    check(cuMemGetInfo(&free_bytes, &total), "cuMemGetInfo");
    check(cuDeviceGetName(name, sizeof name, load->device), "cuDeviceGetName");
    check(cuDriverGetVersion(&driver), "cuDriverGetVersion");
    printf("{\"card\": \"%s\", \"driver\": %d, \"free\": %zu, \"total\": %zu}\n", name, driver,
           free_bytes, total);
}

static void do_bus(struct load *load, const uint64_t *numbers, unsigned count)
{
    const struct bus bus = measure_bus(numbers[0]);

    (void)load, (void)count;
    printf("{\"h2d\": %.0f, \"d2h\": %.0f, \"duplex\": %.0f}\n", bus.h2d, bus.d2h, bus.duplex);
}

static void do_take(struct load *load, const uint64_t *numbers, unsigned count)
{
    (void)count;
    take_memory(load, numbers[0]);
    tell_state();
}

static void do_calibrate(struct load *load, const uint64_t *numbers, unsigned count)
{
    const uint64_t took = calibrate_load(load, numbers[0]);

    (void)count;
    printf("{\"steps\": %u, \"ns\": %" PRIu64 "}\n", load->steps, took);
}

static void do_steps(struct load *load, const uint64_t *numbers, unsigned count)
{
    (void)count;
    load->steps = (uint32_t)numbers[0];
    tell_state();
}

static void do_batch(struct load *load, const uint64_t *numbers, unsigned count)
{
    (void)count;
    load->batch = numbers[0] > 0 ? (uint32_t)numbers[0] : 1;
    tell_state();
}

static void do_phases(struct load *load, const uint64_t *numbers, unsigned count)
{
    const uint64_t from = now_ns();

    (void)count;
    for (uint64_t i = 0; i < numbers[0]; i++) {
        rest_ns(numbers[2]);
        run_kernels(load, numbers[1]);
    }
    printf("{\"from\": %" PRIu64 ", \"to\": %" PRIu64 "}\n", from, now_ns());
}

static void do_work(struct load *load, const uint64_t *numbers, unsigned count)
{
    (void)count;
    load->count = 0;
    while (now_ns() < numbers[0]) {
        run_kernels(load, load->batch);
        note_end(load);
    }
    print_ends(load);
}

static void do_requests(struct load *load, const uint64_t *numbers, unsigned count)
{
    load->count = 0;
    for (unsigned i = 1; i < count; i++) {
        rest_until(numbers[i]);
        run_kernels(load, numbers[0]);
        note_end(load);
    }
    print_ends(load);
}

static void do_check(struct load *load, const uint64_t *numbers, unsigned count)
{
    (void)numbers, (void)count;
    printf("{\"wrong\": %" PRIu64 "}\n", count_wrong(load));
}

static const struct command {
    const char *word;
    unsigned least, most; /* numbers */
    bool works;           /* on memory that has been taken */
    void (*run)(struct load *load, const uint64_t *numbers, unsigned count);
} commands[] = {
    {"card", 0, 0, false, do_card},
    {"bus", 1, 1, false, do_bus},
    {"take", 1, 1, false, do_take},
    {"steps", 1, 1, false, do_steps},
    {"batch", 1, 1, false, do_batch},
    {"calibrate", 1, 1, true, do_calibrate},
    {"phases", 3, 3, true, do_phases},
    {"work", 1, 1, true, do_work},
    {"requests", 2, NUMBERS_MAX, true, do_requests},
    {"check", 0, 0, true, do_check},
};

/* False: there is no such command, or not so. */
static bool obey_line(struct load *load, const char *line)
{
    static uint64_t numbers[NUMBERS_MAX];
    const size_t length = strcspn(line, " \n");
    const char *at = line + length;
    unsigned count = 0;

    for (char *end; count < NUMBERS_MAX; at = end) {
        const uint64_t number = strtoull(at, &end, 10);

        if (end == at)
            break;
        numbers[count++] = number;
    }
    if (strcmp(at, "\n") != 0)
        return false;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        const struct command *command = &commands[i];

        if (strlen(command->word) != length || strncmp(command->word, line, length) != 0)
            continue;
        if (count < command->least || count > command->most ||
            (command->works && load->memory == 0))
            return false;
        command->run(load, numbers, count);
        return true;
    }
    return false;
}

int main(void)
{
    struct load load = {0};
    char *line = NULL;
    size_t room = 0;
    int status = 0;

    open_load(&load);
    while (status == 0 && getline(&line, &room, stdin) > 0) {
        if (!obey_line(&load, line)) {
            fprintf(stderr, "load: cannot do '%.60s'; what it can: bench/load.c\n", line);
            status = 1;
        }
        fflush(stdout);
    }
    free(line);
    free(load.ends);
    return status;
}

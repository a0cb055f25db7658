/* SPDX-License-Identifier: Apache-2.0
 *
 * differ.c: random, reproducible sequences of driver calls, and what the driver answered: one line
 * a call, without addresses and handles. The output with gpushare must be the output without
 * (test_differ.py runs both, compares, and makes a sequence that differs shorter).
 *
 *   differ --seed S [--operations N] [--only A,B-C] [--threads T] [--faults] [--alarm SECONDS]
 *          [--runtime FILE]
 *
 *   --only      leaves out all operations but these; the others stay as they are
 *   --threads   the calls come from so many threads, one call at a time (default 1)
 *   --faults    with accesses that fault and arguments that invalidate captures
 *
 *   --runtime   with calls of that CUDA runtime (libcudart.so.13), too
 *
 *   --alarm     ends an operation that takes longer (default 60)
 *
 * Exit status: 0, or 77 if there is no card. Built without CUDA libraries: everything by dlsym.
 */
#include "tests/gpu/differ/differ.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/simcuda/standin.h"

#define MAX_THREADS 4
#define LIMIT_S     60

struct world world;
unsigned char host_source[HOST_BYTES], host_target[HOST_BYTES];

static const struct operation *const families[] = {
    memory_operations, ordered_operations, virtual_operations, stream_operations,
    graph_operations,  context_operations, runtime_operations}; /* only with a runtime */

/* --- kernels: on a card from this text, on the simulated card by stand-ins --- */

static const char code[] =
    ".version 6.4\n.target sm_70\n.address_size 64\n"
    ".visible .global .align 4 .b8 differ_global[64];\n"
    ".visible .entry differ_add(.param .u64 at, .param .u32 count, .param .u32 value)\n"
    "{\n"
    " .reg .u64 %a;\n .reg .u32 %n, %v, %x;\n .reg .pred %p;\n"
    " ld.param.u64 %a, [at];\n ld.param.u32 %n, [count];\n ld.param.u32 %v, [value];\n"
    "again:\n"
    " ld.global.u32 %x, [%a];\n add.u32 %x, %x, %v;\n st.global.u32 [%a], %x;\n"
    " add.u64 %a, %a, 4;\n sub.u32 %n, %n, 1;\n"
    " setp.ne.u32 %p, %n, 0;\n @%p bra again;\n ret;\n"
    "}\n"
    ".visible .entry differ_poke(.param .u64 at)\n"
    "{\n"
    " .reg .u64 %a;\n .reg .u32 %v;\n ld.param.u64 %a, [at];\n"
    " mov.u32 %v, 7;\n st.volatile.global.u32 [%a], %v;\n ret;\n"
    "}\n";

static void run_add(const struct simcuda_launch *launch)
{
    unsigned *at = *(unsigned *const *)launch->params[0];

    for (unsigned i = 0; i < *(const unsigned *)launch->params[1]; i++)
        at[i] += *(const unsigned *)launch->params[2];
}

static void run_poke(const struct simcuda_launch *launch)
{
    **(unsigned *volatile *)launch->params[0] = 7;
}

static const uint32_t add_sizes[] = {8, 4, 4}, poke_sizes[] = {8};
__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{"differ_add", run_add, 3, add_sizes},
                                                 {"differ_poke", run_poke, 1, poke_sizes},
                                                 {NULL, NULL, 0, NULL}};

/* --- random numbers: of the seed and the operation's number only --- */

static uint64_t mix(uint64_t x) /* splitmix64 */
{
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

unsigned pick(unsigned bound)
{
    world.random = mix(world.random);
    return (unsigned)((world.random >> 16) % bound);
}

bool one_in(unsigned parts)
{
    return pick(parts) == 0;
}

size_t pick_size(void)
{
    static const size_t sizes[] = {1,           3,           511,     512,           513,
                                   4096,        5000,        65536,   100000,        512 * KIB,
                                   MIB - 512,   MIB - 1,     MIB,     MIB + 1,       MIB + 512,
                                   3 * MIB / 2, 2 * MIB - 1, 2 * MIB, 2 * MIB + 512, 3 * MIB,
                                   4 * MIB,     6 * MIB - 1, 8 * MIB};

    return one_in(4) ? 1 + (size_t)pick(3 * MIB) : sizes[pick(LENGTH(sizes))];
}

/* --- the line of an operation --- */

static char line[4096];
static size_t line_bytes;

void tell(const char *format, ...)
{
    va_list args;
    int wrote;

    va_start(args, format);
    wrote = vsnprintf(line + line_bytes, sizeof line - line_bytes, format, args);
    va_end(args);
    if (wrote > 0)
        line_bytes += (size_t)wrote;
    if (line_bytes >= sizeof line)
        line_bytes = sizeof line - 1;
}

CUresult answer(CUresult result)
{
    tell(" = %d", (int)result);
    return result;
}

void tell_address(CUdeviceptr address)
{
    for (unsigned i = 0; i < MEMORIES; i++) {
        const struct memory *m = &world.memory[i];

        if (m->start != 0 && address - m->start < m->bytes) {
            tell(" m%u+%zu", i, (size_t)(address - m->start));
            return;
        }
    }
    for (unsigned i = 0; i < RESERVATIONS; i++) {
        const struct reservation *r = &world.reservation[i];

        if (r->start != 0 && address - r->start < 2 * MIB * GRANULES) {
            tell(" r%u+%zu", i, (size_t)(address - r->start));
            return;
        }
    }
    for (unsigned i = 0; i < HOSTS; i++) {
        const CUdeviceptr start = (CUdeviceptr)(uintptr_t)world.host[i].start;

        if (start != 0 && address - start < world.host[i].bytes) {
            tell(" h%u+%zu", i, (size_t)(address - start));
            return;
        }
    }
    tell(address == 0 ? " 0" : " elsewhere");
}

void tell_sum(const void *bytes, size_t count)
{
    uint32_t sum = 2166136261U; /* FNV-1a */

    for (size_t i = 0; i < count; i++)
        sum = (sum ^ ((const unsigned char *)bytes)[i]) * 16777619U;
    tell(" sum %08x", (unsigned)sum);
}

/* An operation does not end: tells which. */
static void on_alarm(int signal_number)
{
    if (write(STDERR_FILENO, line, line_bytes) < 0 || write(STDERR_FILENO, "\n", 1) < 0)
        _exit(1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* --- objects --- */

CUstream pick_stream(void)
{
    unsigned slot = pick(STREAMS);

    while (slot > 1 && world.stream[slot] == NULL)
        slot--;
    tell(" s%u", slot);
    return slot == 0 ? CU_STREAM_LEGACY : slot == 1 ? CU_STREAM_PER_THREAD : world.stream[slot];
}

struct memory *pick_memory(void)
{
    unsigned slot = pick(MEMORIES);

    for (unsigned i = 0; i < MEMORIES; i++, slot = (slot + 1) % MEMORIES)
        if (world.memory[slot].start != 0) {
            tell(" m%u", slot);
            return &world.memory[slot];
        }
    return NULL;
}

CUdeviceptr pick_address(size_t *left)
{
    struct memory *memory = pick_memory();
    size_t offset, beside;

    *left = 0;
    world.picked = NULL;
    if (one_in(40)) {
        tell(" null");
        return 0;
    }
    if (memory == NULL)
        return 0;
    beside = -memory->bytes % 512; /* where no other allocation can be */
    if (one_in(12) && beside != 0) {
        offset = memory->bytes + pick((unsigned)beside);
    } else {
        world.picked = memory;
        offset = one_in(2) ? 0 : pick((unsigned)memory->bytes);
        *left = memory->bytes - offset;
    }
    tell("+%zu", offset);
    return memory->start + offset;
}

void note_graph_use(struct graph_uses *uses, const struct memory *memory)
{
    unsigned *number = &uses->number[memory - world.memory];

    *number = *number == 0 || *number == memory->number ? memory->number : GONE;
}

void note_use(const struct memory *memory)
{
    if (world.capturing != 0 && memory != NULL)
        note_graph_use(&world.capture_uses, memory);
}

/* --- the sequence --- */

static bool wanted(const char *only, unsigned number)
{
    if (only == NULL)
        return true;
    for (const char *at = only; *at != 0;) {
        char *end;
        unsigned long from = strtoul(at, &end, 10), to = from;

        if (end == at)
            return false;
        if (*end == '-')
            to = strtoul(end + 1, &end, 10);
        if (number >= from && number <= to)
            return true;
        at = *end == ',' ? end + 1 : end;
    }
    return false;
}

static const struct operation *pick_operation(void)
{
    const size_t count = LENGTH(families) - (world.runtime == NULL);
    unsigned sum = 0, at;

    for (unsigned f = 0; f < count; f++)
        for (const struct operation *o = families[f]; o->name != NULL; o++)
            sum += o->weight;
    at = pick(sum);
    for (unsigned f = 0; f < count; f++)
        for (const struct operation *o = families[f]; o->name != NULL; o++) {
            if (at < o->weight)
                return o;
            at -= o->weight;
        }
    return NULL;
}

/* Waits for all work of the current context. A capture goes on: beside it cuCtxSynchronize is
 * refused, and cuMemFree waits. */
static CUresult wait_here(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUdeviceptr nothing = 0;
    CUresult result;

    if (world.capturing == 0)
        return CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)();
    CALL(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode_v10010)(&mode);
    result = CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&nothing, 1);
    if (result == CUDA_SUCCESS)
        result = CALL(cuMemFree_v2, cuMemFree_v3020)(nothing);
    CALL(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode_v10010)(&mode);
    return result;
}

/* Waits for all work of all contexts. *here: what the current one says. */
static bool wait_everywhere(CUresult *here)
{
    const CUcontext contexts[] = {world.primary, world.second};
    CUcontext current = NULL, popped;
    bool good;

    *here = wait_here();
    good = *here == CUDA_SUCCESS;
    CALL(cuCtxGetCurrent, cuCtxGetCurrent_v4000)(&current);
    for (unsigned i = 0; i < LENGTH(contexts); i++) {
        if (contexts[i] == NULL || contexts[i] == current ||
            CALL(cuCtxPushCurrent_v2, cuCtxPushCurrent_v4000)(contexts[i]) != CUDA_SUCCESS)
            continue;
        good &= wait_here() == CUDA_SUCCESS;
        CALL(cuCtxPopCurrent_v2, cuCtxPopCurrent_v4000)(&popped);
    }
    return good;
}

bool settle(void)
{
    CUresult here;

    return wait_everywhere(&here);
}

/* What was submitted has its effect before the next call: else it would be the machine's affair
 * which of two operations on different streams comes first. */
static void run_operation(void)
{
    const struct operation *operation = pick_operation();
    CUresult result;

    tell("%s", operation->name);
    operation->run();
    wait_everywhere(&result);
    if (result != CUDA_SUCCESS)
        tell("; after it %d", (int)result);
}

/* Threads take turns: the number of the one whose turn it is. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    unsigned turn; /* 0: the main thread; more than MAX_THREADS: the end */
} baton = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};

static void pass_baton(unsigned to, unsigned back)
{
    pthread_mutex_lock(&baton.mutex);
    baton.turn = to;
    pthread_cond_broadcast(&baton.changed);
    while (baton.turn != back)
        pthread_cond_wait(&baton.changed, &baton.mutex);
    pthread_mutex_unlock(&baton.mutex);
}

static void *work(void *argument)
{
    const unsigned me = (unsigned)(uintptr_t)argument;

    pthread_mutex_lock(&baton.mutex);
    for (;;) {
        while (baton.turn != me && baton.turn <= MAX_THREADS)
            pthread_cond_wait(&baton.changed, &baton.mutex);
        if (baton.turn != me)
            break;
        run_operation();
        baton.turn = 0;
        pthread_cond_broadcast(&baton.changed);
    }
    pthread_mutex_unlock(&baton.mutex);
    return NULL;
}

static void set_up(void)
{
    CUdeviceptr kept; /* with it, wait_here() finds a byte in memory that is there */
    CUdevice device;

    world.driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (world.driver == NULL || CALL(cuInit, cuInit_v2000)(0) != CUDA_SUCCESS ||
        CALL(cuDeviceGet, cuDeviceGet_v2000)(&device, 0) != CUDA_SUCCESS ||
        CALL(cuDevicePrimaryCtxRetain,
             cuDevicePrimaryCtxRetain_v7000)(&world.primary, device) != CUDA_SUCCESS) {
        fprintf(stderr, "differ: no card\n");
        exit(77);
    }
    CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(world.primary);
    CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(&kept, 1);
    CALL(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool_v11020)(&world.pool[0], device);
    if (CALL(cuModuleLoadData, cuModuleLoadData_v2000)(&world.module, code) != CUDA_SUCCESS ||
        CALL(cuModuleGetFunction, cuModuleGetFunction_v2000)(&world.add, world.module,
                                                             "differ_add") != CUDA_SUCCESS ||
        CALL(cuModuleGetFunction, cuModuleGetFunction_v2000)(&world.poke, world.module,
                                                             "differ_poke") != CUDA_SUCCESS) {
        fprintf(stderr, "differ: its kernels cannot be loaded\n");
        exit(1);
    }
    for (unsigned i = 0; i < HOST_BYTES; i++)
        host_source[i] = (unsigned char)mix(i);
}

int main(int argc, char **argv)
{
    uint64_t seed = 1;
    unsigned operations = 200, threads = 1, limit_s = LIMIT_S;
    const char *only = NULL, *runtime = NULL;
    pthread_t thread[MAX_THREADS + 1];

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--faults") == 0)
            world.faults = true;
        else if (i + 1 == argc)
            return 64;
        else if (strcmp(argv[i], "--seed") == 0)
            seed = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--operations") == 0)
            operations = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--threads") == 0)
            threads = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--alarm") == 0)
            limit_s = (unsigned)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--only") == 0)
            only = argv[++i];
        else if (strcmp(argv[i], "--runtime") == 0)
            runtime = argv[++i];
        else
            return 64;
    }
    if (threads < 1 || threads > MAX_THREADS)
        return 64;
    signal(SIGALRM, on_alarm);
    alarm(limit_s);
    set_up();
    if (runtime != NULL && (world.runtime = dlopen(runtime, RTLD_NOW)) == NULL) {
        fprintf(stderr, "differ: no CUDA runtime: %s\n", dlerror());
        return 77;
    }
    for (unsigned i = 1; i < threads; i++)
        pthread_create(&thread[i], NULL, work, (void *)(uintptr_t)i);
    for (unsigned number = 0; number < operations; number++) {
        unsigned runs_on;

        world.random = mix(seed * 1000003 + number);
        runs_on = one_in(2) ? 0 : pick(threads);
        if (!wanted(only, number))
            continue;
        alarm(limit_s);
        line_bytes = 0;
        tell("%u", number);
        if (threads > 1)
            tell(" t%u", runs_on);
        tell(" ");
        if (runs_on == 0)
            run_operation();
        else
            pass_baton(runs_on, 0);
        puts(line);
        fflush(stdout);
    }
    pthread_mutex_lock(&baton.mutex);
    baton.turn = MAX_THREADS + 1;
    pthread_cond_broadcast(&baton.changed);
    pthread_mutex_unlock(&baton.mutex);
    for (unsigned i = 1; i < threads; i++)
        pthread_join(thread[i], NULL);
    return 0;
}

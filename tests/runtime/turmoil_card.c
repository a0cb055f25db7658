/* SPDX-License-Identifier: Apache-2.0
 *
 * turmoil_card.c: the kernels of turmoil, their stand-ins for the simulated card, and what is
 * said when something is wrong.
 *
 * Kernels report into page-locked memory, which turmoil_look() reads. State: the context, the
 * functions, the report, the newest notes of all threads. Any thread.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/runtime/turmoil.h"
#include "tests/simcuda/standin.h"

#define NOTES 200

#ifdef TURMOIL_FATBIN /* its path, from the build */
__asm__(".section .rodata\n.balign 64\nturmoil_fatbin:\n.incbin \"" TURMOIL_FATBIN
        "\"\n.byte 0\n.previous\n");
extern const char turmoil_fatbin[];
#define CODE turmoil_fatbin
#else /* the simulated driver finds the stand-ins by name */
#define CODE ".version 8.0\n.target sm_80\n"
#endif

struct report { /* as in turmoil_kernels.cu */
    uint64_t count, kernel, address, word, got, wanted;
};

static const char *const report_names[] = {"fill's own write", "check", "check, later",
                                           "chain"};
static CUcontext context;
static CUfunction fill, check, chain, bump;
static struct report *report;      /* as the host sees it */
static CUdeviceptr report_address; /* as the card does */

static pthread_mutex_t notes_lock = PTHREAD_MUTEX_INITIALIZER;
static char notes[NOTES][120];
static uint64_t note_count;

/* --- stand-ins --- */

#define PARAM(n, type) (*(type const *)launch->params[n])

static void wait_ns(uint64_t ns)
{
    const struct timespec pause = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};

    if (ns != 0)
        nanosleep(&pause, NULL);
}

static bool is_wrong(const volatile uint64_t *at, uint64_t word, uint64_t wanted,
                     unsigned kernel, struct report *to)
{
    const uint64_t got = at[word];

    if (got == wanted)
        return false;
    if (__atomic_load_n(&to->count, __ATOMIC_RELAXED) == 0) {
        to->kernel = kernel;
        to->address = (uint64_t)at;
        to->word = word;
        to->got = got;
        to->wanted = wanted;
    }
    __atomic_fetch_add(&to->count, 1, __ATOMIC_RELEASE);
    return true;
}

/* Of large blocks not every word is read: a word in each 512 bytes, which pieces consist of. */
static uint64_t stride_of(uint64_t words)
{
    return words <= 4096 ? 1 : 61;
}

static void run_fill(const struct simcuda_launch *launch)
{
    uint64_t *to = PARAM(0, uint64_t *);
    const uint64_t words = PARAM(1, uint64_t), base = PARAM(2, uint64_t),
                   ns = PARAM(3, uint64_t);

    wait_ns(ns / 2);
    for (uint64_t i = 0; i < words; i++)
        to[i] = base + i % TURMOIL_CYCLE;
    wait_ns(ns / 2);
    for (uint64_t i = 0; i < words; i += stride_of(words))
        if (is_wrong(to, i, base + i % TURMOIL_CYCLE, 0, PARAM(4, struct report *)))
            return;
}

static void run_check(const struct simcuda_launch *launch)
{
    const uint64_t *from = PARAM(0, uint64_t *);
    const uint64_t words = PARAM(1, uint64_t), base = PARAM(2, uint64_t),
                   step = PARAM(3, uint64_t), ns = PARAM(4, uint64_t);

    for (unsigned round = 0; round < 2; round++) {
        wait_ns(ns / 2);
        for (uint64_t i = 0; i < words; i += stride_of(words))
            if (is_wrong(from, i, base + i % TURMOIL_CYCLE * step, 1 + round,
                         PARAM(5, struct report *)))
                return;
    }
}

static void run_chain(const struct simcuda_launch *launch)
{
    uint64_t *to = PARAM(0, uint64_t *);
    const uint64_t *from = PARAM(1, uint64_t *);
    const uint64_t words = PARAM(2, uint64_t), base = PARAM(3, uint64_t),
                   step = PARAM(4, uint64_t), to_base = PARAM(5, uint64_t);

    wait_ns(PARAM(6, uint64_t));
    for (uint64_t i = 0; i < words; i++) {
        if (i % stride_of(words) == 0 &&
            is_wrong(from, i, base + i % TURMOIL_CYCLE * step, 3, PARAM(7, struct report *)))
            return;
        to[i] = to_base + i % TURMOIL_CYCLE;
    }
}

static void run_bump(const struct simcuda_launch *launch)
{
    uint64_t *at = PARAM(0, uint64_t *);

    wait_ns(PARAM(2, uint64_t));
    for (uint64_t i = 0; i < PARAM(1, uint64_t); i++)
        at[i]++;
}

static const uint32_t sizes[] = {8, 8, 8, 8, 8, 8, 8, 8};
__attribute__((visibility("default")))
const struct simcuda_kernel simcuda_kernels[] = {{"turmoil_fill", run_fill, 5, sizes},
                                                 {"turmoil_check", run_check, 6, sizes},
                                                 {"turmoil_chain", run_chain, 8, sizes},
                                                 {"turmoil_bump", run_bump, 3, sizes},
                                                 {NULL, NULL, 0, NULL}};

/* --- notes and ends --- */

void turmoil_note(const struct turmoil_thread *thread, const char *format, ...)
{
    char text[100];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&notes_lock);
    snprintf(notes[note_count++ % NOTES], sizeof notes[0], "%u.%llu %s", thread->number,
             (unsigned long long)thread->step, text);
    pthread_mutex_unlock(&notes_lock);
}

void turmoil_fail(const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&notes_lock); /* for good: one failure is enough */
    for (uint64_t i = note_count < NOTES ? 0 : note_count - NOTES; i < note_count; i++)
        fprintf(stderr, "  %s\n", notes[i % NOTES]);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fprintf(stderr, "\n");
    _exit(1);
}

void turmoil_must(const struct turmoil_thread *thread, CUresult result, const char *call)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return;
    if (cuGetErrorName(result, &name) != CUDA_SUCCESS)
        name = "unknown";
    turmoil_fail("turmoil[%d] seed %llu thread %u step %llu: %s: %s (%d)", (int)getpid(),
                 (unsigned long long)thread->shape->seed, thread->number,
                 (unsigned long long)thread->step, call, name, (int)result);
}

static void fail_by_word(const char *what, uint64_t address, uint64_t word, uint64_t got,
                         uint64_t wanted)
{
    turmoil_fail("turmoil[%d]: WRONG WORD, %s: %#llx word %llu is %#llx (write %llu of thread "
                 "%llu, word %llu?), must be %#llx (write %llu of thread %llu)",
                 (int)getpid(), what, (unsigned long long)address, (unsigned long long)word,
                 (unsigned long long)got, (unsigned long long)(got >> 20 & 0xffffffffu),
                 (unsigned long long)(got >> 56), (unsigned long long)(got % TURMOIL_CYCLE),
                 (unsigned long long)wanted, (unsigned long long)(wanted >> 20 & 0xffffffffu),
                 (unsigned long long)(wanted >> 56));
}

void turmoil_look(void)
{
    if (__atomic_load_n(&report->count, __ATOMIC_ACQUIRE) != 0)
        fail_by_word(report_names[report->kernel % 4], report->address, report->word,
                     report->got, report->wanted);
}

void turmoil_check_words(const uint64_t *words, const struct turmoil_slot *slot)
{
    for (uint64_t i = 0; i < slot->count; i++) {
        const uint64_t wanted = slot->base + (slot->first + i) % TURMOIL_CYCLE * slot->step;

        if (words[i] != wanted)
            fail_by_word("copy to the host", (uint64_t)&words[i], slot->first + i, words[i],
                         wanted);
    }
}

/* --- the card --- */

static void must_open(CUresult result, const char *what)
{
    if (result == CUDA_SUCCESS)
        return;
    fprintf(stderr, "turmoil: %s: CUresult %d\n", what, (int)result);
    exit(1);
}

void turmoil_card_open(void)
{
    CUmodule module;

    must_open(cuInit(0), "cuInit");
    must_open(cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
    must_open(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must_open(cuModuleLoadData(&module, CODE), "cuModuleLoadData");
    must_open(cuModuleGetFunction(&fill, module, "turmoil_fill"), "turmoil_fill");
    must_open(cuModuleGetFunction(&check, module, "turmoil_check"), "turmoil_check");
    must_open(cuModuleGetFunction(&chain, module, "turmoil_chain"), "turmoil_chain");
    must_open(cuModuleGetFunction(&bump, module, "turmoil_bump"), "turmoil_bump");
    must_open(cuMemHostAlloc((void **)&report, sizeof *report,
                             CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
              "cuMemHostAlloc");
    must_open(cuMemHostGetDevicePointer(&report_address, report, 0),
              "cuMemHostGetDevicePointer");
    memset(report, 0, sizeof *report);
}

void turmoil_thread_enter(bool relaxed)
{
    CUstreamCaptureMode mode =
        relaxed ? CU_STREAM_CAPTURE_MODE_RELAXED : CU_STREAM_CAPTURE_MODE_GLOBAL;

    must_open(cuCtxSetCurrent(context), "cuCtxSetCurrent");
    must_open(cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
}

/* --- launches --- */

uint64_t turmoil_kernel_ns(struct turmoil_thread *thread)
{
    return turmoil_below(thread, 3) == 0 ? 0
                                         : turmoil_below(thread, thread->shape->longest + 1);
}

static void launch_kernel(const struct turmoil_thread *thread, CUfunction function,
                          uint64_t words, CUstream stream, void **params)
{
    const unsigned blocks = words < 65536 ? 4 : 32;

    TURMOIL_MUST(thread,
                 cuLaunchKernel(function, blocks, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

void turmoil_fill(const struct turmoil_thread *thread, CUdeviceptr address, size_t bytes,
                  uint64_t base, uint64_t ns, CUstream stream)
{
    uint64_t words = bytes / 8;

    launch_kernel(thread, fill, words, stream,
                  (void *[]){&address, &words, &base, &ns, &report_address});
}

static void launch_check(const struct turmoil_thread *thread, CUfunction function,
                         const struct turmoil_block *block, uint64_t ns, CUstream stream)
{
    struct turmoil_block copy = *block;
    uint64_t words = block->bytes / 8;

    launch_kernel(
        thread, function, words, stream,
        (void *[]){&copy.address, &words, &copy.base, &copy.step, &ns, &report_address});
}

void turmoil_check(const struct turmoil_thread *thread, const struct turmoil_block *block,
                   uint64_t ns, CUstream stream)
{
    launch_check(thread, check, block, ns, stream);
}

void turmoil_chain(const struct turmoil_thread *thread, const struct turmoil_block *to,
                   const struct turmoil_block *from, uint64_t base, uint64_t ns)
{
    struct turmoil_block source = *from, target = *to;
    uint64_t words = to->bytes / 8;

    launch_kernel(thread, chain, words, to->stream,
                  (void *[]){&target.address, &source.address, &words, &source.base,
                             &source.step, &base, &ns, &report_address});
}

void turmoil_bump(const struct turmoil_thread *thread, const struct turmoil_block *block,
                  uint64_t ns, CUstream stream)
{
    CUdeviceptr address = block->address;
    uint64_t words = block->bytes / 8;

    launch_kernel(thread, bump, words, stream, (void *[]){&address, &words, &ns});
}

void turmoil_module_once(const struct turmoil_thread *thread, const struct turmoil_block *block)
{
    CUfunction function;
    CUmodule module;

    TURMOIL_MUST(thread, cuModuleLoadData(&module, CODE));
    TURMOIL_MUST(thread, cuModuleGetFunction(&function, module, "turmoil_check"));
    launch_check(thread, function, block, 0, block->stream);
    TURMOIL_MUST(thread, cuStreamSynchronize(block->stream));
    TURMOIL_MUST(thread, cuModuleUnload(module));
}

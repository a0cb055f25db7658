/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c: owns the driver object: its life, the entry and exit of every call, the table of
 * live handles, and what the process leaves on the cards when it ends.
 *
 * Invariants: a call's body runs with sim.lock held. A child of fork() finds the driver FORKED:
 * as with a real one, every call then returns CUDA_ERROR_NOT_INITIALIZED, and it touches
 * neither the cards nor the statistics of its parent. Threads: any.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "tests/simcuda/graph.h"

struct sim_driver sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER, .next_id = 1};
struct sim_stats sim_stats;
__thread struct sim_thread sim_thread;

static pthread_key_t thread_key;
static pthread_once_t thread_key_once = PTHREAD_ONCE_INIT;

/* -- handles: open addressing, linear probing, deleted entries keep the kind NONE -- */

static struct sim_handle {
    const void *object;
    enum sim_kind kind;
} * handles;
static size_t handle_slots, handle_used;

static size_t handle_place(const void *object)
{
    size_t i = ((uintptr_t)object >> 4) * 0x9E3779B97F4A7C15u & (handle_slots - 1);

    while (handles[i].object && handles[i].object != object)
        i = (i + 1) & (handle_slots - 1);
    return i;
}

static int handles_grow(void)
{
    struct sim_handle *old = handles;
    const size_t old_slots = handle_slots;
    size_t live = 0;

    for (size_t i = 0; i < old_slots; i++)
        live += old[i].kind != SIM_KIND_NONE;
    const size_t slots = live * 4 > 256 ? live * 4 : 256;
    size_t power = 256;
    while (power < slots)
        power *= 2;
    struct sim_handle *fresh = calloc(power, sizeof *fresh);
    if (!fresh)
        return -ENOMEM;
    handles = fresh;
    handle_slots = power;
    handle_used = live;
    for (size_t i = 0; i < old_slots; i++)
        if (old[i].kind != SIM_KIND_NONE)
            handles[handle_place(old[i].object)] = old[i];
    free(old);
    return 0;
}

int sim_handle_add(const void *object, enum sim_kind kind)
{
    if (handle_used * 2 >= handle_slots && handles_grow())
        return -ENOMEM;
    struct sim_handle *handle = &handles[handle_place(object)];
    handle_used += handle->object == NULL;
    *handle = (struct sim_handle){object, kind};
    return 0;
}

void sim_handle_remove(const void *object)
{
    if (handle_slots)
        handles[handle_place(object)].kind = SIM_KIND_NONE;
}

enum sim_kind sim_handle_kind(const void *object)
{
    return handle_slots && object ? handles[handle_place(object)].kind : SIM_KIND_NONE;
}

/* -- calls -- */

/* Counts the call as inside; first waits while another process has us locked (checkpoint.c).
 * Whoever locks us sets the state before it looks at the count. */
static void enter_call(void)
{
    struct sim_client *entry = sim.own;

    for (;;) {
        __atomic_fetch_add(&entry->inside, 1, __ATOMIC_SEQ_CST);
        if (__atomic_load_n(&entry->state, __ATOMIC_SEQ_CST) == CU_PROCESS_STATE_RUNNING) {
            sim_follow_move();
            return;
        }
        __atomic_fetch_sub(&entry->inside, 1, __ATOMIC_SEQ_CST);
        pthread_mutex_unlock(&sim.lock);
        sim_sleep_until(sim_now_ns() + 1000000);
        pthread_mutex_lock(&sim.lock);
    }
}

struct sim_call sim_begin(const char *name, unsigned needs)
{
    struct sim_call call = {.name = name};
    unsigned delay;

    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &call.cancel);
    delay = sim_delay_due(name);
    if (delay)
        sim_sleep_until(sim_now_ns() + delay * 1000000ull);
    sim_stop_if_due(name);
    pthread_mutex_lock(&sim.lock);
    sim_context_spread_faults();
    if ((needs & SIM_INIT) && sim.state == SIM_READY) {
        enter_call();
        call.counted = true;
    }
    sim_stats.calls++;
    call.result = sim_fault_due(name);
    if (call.result)
        return call;
    if ((needs & SIM_INIT) && sim.state != SIM_READY) {
        call.result = CUDA_ERROR_NOT_INITIALIZED;
        return call;
    }
    if (sim.state != SIM_READY)
        return call;
    call.context = sim_context_check(NULL);
    if ((needs & SIM_CTX) == SIM_CTX) {
        if (!call.context)
            call.result =
                sim_thread.depth ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
        else
            call.result = __atomic_load_n(&call.context->sticky, __ATOMIC_RELAXED);
    }
    if (!call.result && (needs & SIM_UNSAFE) && sim_capture_forbids())
        call.result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return call;
}

CUresult sim_end(const struct sim_call *call, CUresult result)
{
    const bool failed = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;

    sim_stats.failures += failed;
    if (call->counted)
        __atomic_fetch_sub(&sim.own->inside, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&sim.lock);
    if (failed)
        sim_log("%s failed: %s (%d)", call->name, sim_error_name(result), (int)result);
    pthread_setcancelstate(call->cancel, NULL);
    return result;
}

int sim_unsupported(const char *name)
{
    struct sim_call call = sim_begin(name, SIM_ANYTIME);

    return (int)sim_end(&call, call.result ? call.result : CUDA_ERROR_NOT_SUPPORTED);
}

/* -- life -- */

static void before_fork(void)
{
    pthread_mutex_lock(&sim.lock);
}

static void after_fork_parent(void)
{
    pthread_mutex_unlock(&sim.lock);
}

static void after_fork_child(void)
{
    pthread_mutex_init(&sim.lock, NULL);
    pthread_cond_init(&sim.progress, NULL);
    if (sim.state == SIM_READY)
        sim.state = SIM_FORKED;
    sim_thread.depth = 0;
}

static void make_thread_key(void)
{
    pthread_key_create(&thread_key, (void (*)(void *))sim_thread_end);
}

void sim_thread_register(void)
{
    if (sim_thread.registered)
        return;
    pthread_once(&thread_key_once, make_thread_key);
    sim_thread.registered = pthread_setspecific(thread_key, &sim_thread) == 0;
}

static CUresult open_device(unsigned index, struct sim_device *device)
{
    struct gs_err err = {0};

    if (sim_card_join(index, &device->card, &device->client, &err)) {
        sim_log("cuInit: %s", err.text);
        dprintf(STDERR_FILENO, "simcuda: %s\n", err.text);
        return CUDA_ERROR_NO_DEVICE;
    }
    device->memory_fd = memfd_create("simcuda", MFD_CLOEXEC);
    return device->memory_fd < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

/* The first card says how many there are; who does not see it leaves it again. */
static CUresult open_devices(void)
{
    struct sim_device first = {0};
    unsigned order[SIM_CARDS_MAX];
    CUresult result = open_device(0, &first);
    bool seen = false;

    if (result)
        return result;
    const unsigned count = sim_visible(first.card->properties.cards, order);
    for (unsigned i = 0; i < count && !result; i++) {
        seen = seen || order[i] == 0;
        if (order[i] == 0)
            sim.device[i] = first;
        else
            result = open_device(order[i], &sim.device[i]);
    }
    if (!seen) {
        sim_card_leave(first.card, first.client);
        sim_card_unmap(first.card);
        close(first.memory_fd);
    }
    sim.device_count = result ? 0 : count;
    for (unsigned i = 0, lowest = SIM_CARDS_MAX; i < sim.device_count; i++) {
        const struct sim_device *device = &sim.device[i];

        if (device->card->index >= lowest)
            continue;
        lowest = device->card->index;
        sim.own = &device->card->client[device->client];
    }
    return count ? result : CUDA_ERROR_NO_DEVICE;
}

CUresult sim_driver_init(void)
{
    static bool fork_known;
    const char *poison = getenv("SIMCUDA_POISON");
    CUresult result = CUDA_SUCCESS;

    if (sim.state == SIM_FORKED)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim.state == SIM_READY)
        return CUDA_SUCCESS;
    if (!fork_known && pthread_atfork(before_fork, after_fork_parent, after_fork_child))
        return CUDA_ERROR_OUT_OF_MEMORY;
    fork_known = true;
    sim.poison = !poison || strcmp(poison, "0") != 0;
    sim.pid = getpid();
    result = open_devices();
    result = result ? result : sim_memory_init();
    if (result)
        return result;
    sim.state = SIM_READY;
    return CUDA_SUCCESS;
}

static void write_statistics(const char *path)
{
    FILE *file = fopen(path, "we");

    if (!file) {
        sim_log("SIMCUDA_STATS: cannot write %s: %s", path, strerror(errno));
        return;
    }
    fprintf(file,
            "{\"pid\": %d, \"calls\": %llu, \"failures\": %llu, \"launches\": %llu, "
            "\"graph_launches\": %llu, \"to_device_bytes\": %llu, \"to_host_bytes\": %llu, "
            "\"on_device_bytes\": %llu, \"memory_bytes\": %llu, \"memory_peak_bytes\": %llu, "
            "\"managed_faults\": %llu, \"managed_remote\": %llu, "
            "\"managed_evicted\": %llu, \"host_chunk_bytes\": %llu, \"memory_ns\": %llu}\n",
            (int)getpid(), (unsigned long long)sim_stats.calls,
            (unsigned long long)sim_stats.failures, (unsigned long long)sim_stats.launches,
            (unsigned long long)sim_stats.graph_launches,
            (unsigned long long)sim_stats.to_device_bytes,
            (unsigned long long)sim_stats.to_host_bytes,
            (unsigned long long)sim_stats.on_device_bytes,
            (unsigned long long)sim_stats.memory_bytes,
            (unsigned long long)sim_stats.memory_peak,
            (unsigned long long)sim_stats.managed_faults,
            (unsigned long long)sim_stats.managed_remote,
            (unsigned long long)sim_stats.managed_evicted,
            (unsigned long long)sim_stats.host_chunk_bytes,
            (unsigned long long)sim_stats.memory_ns);
    fclose(file);
}

__attribute__((destructor)) static void leave(void)
{
    pthread_mutex_lock(&sim.lock);
    if (sim.state == SIM_READY && sim.pid == getpid()) {
        const char *path = getenv("SIMCUDA_STATS");
        if (path && *path)
            write_statistics(path);
        for (unsigned i = 0; i < sim.device_count; i++)
            sim_card_leave(sim.device[i].card, sim.device[i].client);
    }
    pthread_mutex_unlock(&sim.lock);
}

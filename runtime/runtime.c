/* SPDX-License-Identifier: Apache-2.0
 *
 * runtime.c: the library's beginning and end in a process, and in its forked children.
 *
 * The constructor runs before every other object's (-z initfirst) and only reads the
 * environment; no thread, no connection, no driver before the program makes a context. A copy
 * of the library that is not the first in its process does nothing at all (others.h). A forked
 * child starts fresh: no client, a closed gate, no memory.
 */
#include "runtime/runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/size.h"
#include "runtime/capture.h"
#include "runtime/client.h"
#include "runtime/connect.h"
#include "runtime/converge.h"
#include "runtime/drain.h"
#include "runtime/driver.h"
#include "runtime/gate.h"
#include "runtime/gift.h"
#include "runtime/log.h"
#include "runtime/memory.h"
#include "runtime/others.h"
#include "runtime/pace.h"
#include "runtime/stats.h"

struct gs_runtime gs_runtime;

uint64_t gs_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* True the first time a name is seen (FNV-1a; two names of one hash count as one, which costs a
 * log line). */
static bool is_new(const char *symbol)
{
    static _Atomic(uint32_t) seen[64]; /* relaxed: nothing else depends on it */
    uint32_t hash = 2166136261u, empty;

    for (; *symbol != '\0'; symbol++)
        hash = (hash ^ (unsigned char)*symbol) * 16777619u;
    for (unsigned i = 0; i < sizeof seen / sizeof seen[0]; i++) {
        empty = 0;
        if (atomic_compare_exchange_strong(&seen[i], &empty, hash | 1))
            return true;
        if (empty == (hash | 1))
            return false;
    }
    return false;
}

void gs_runtime_uncovered(const char *symbol, int version)
{
    char text[160];

    atomic_fetch_add_explicit(&gs_runtime.uncovered, 1, memory_order_relaxed);
    snprintf(text, sizeof text,
             "%s was asked for in the ABI of CUDA %d.%d, which this gpushare does not know%s",
             symbol, version / 1000, version % 1000 / 10,
             gs_runtime.config.strict ? ": refused" : ": not covered");
    if (!is_new(symbol))
        return;
    gs_log("%s", text);
    gs_client_note_partial(text);
}

static bool is_one(const char *name)
{
    const char *value = secure_getenv(name);

    return value != NULL && strcmp(value, "1") == 0;
}

static void configure(struct gs_config *config)
{
    const char *limit = secure_getenv("GPUSHARE_DEVICE_LIMIT"),
               *memory = secure_getenv("GPUSHARE_MEMORY");
    static bool said, said_memory;

    config->disabled = is_one("GPUSHARE_DISABLE") || gs_others_are_first();
    config->strict = is_one("GPUSHARE_STRICT");
    config->native_memory = memory != NULL && strcmp(memory, "native") == 0;
    config->managed_memory = memory != NULL && strcmp(memory, "managed") == 0;
    config->stats = secure_getenv("GPUSHARE_STATS");
    if (limit != NULL && *limit != '\0' &&
        (gs_size_parse(limit, &config->device_limit) != 0 || config->device_limit == 0)) {
        config->device_limit = 0;
        gs_say_once(&said, "GPUSHARE_DEVICE_LIMIT=%s is ignored: write a size, as 16GiB",
                    limit);
    }
    if (memory != NULL && *memory != '\0' && !config->native_memory && !config->managed_memory)
        gs_say_once(&said_memory, "GPUSHARE_MEMORY=%s is ignored: write native or managed",
                    memory);
}

static void in_child(void)
{
    gs_stats_after_fork();
    gs_gate_after_fork();
    gs_pace_after_fork();
    gs_gift_in_child();
    gs_memory_after_fork();
    gs_devices_after_fork();
    gs_capture_after_fork();
    gs_drain_after_fork();
    gs_converge_after_fork();
    gs_client_after_fork();
    atomic_store(&gs_runtime.moved_out, 0);
    atomic_store(&gs_runtime.moved_in, 0);
    atomic_store(&gs_runtime.given, 0);
    atomic_store(&gs_runtime.taken_over, 0);
    atomic_store(&gs_runtime.switches, 0);
}

/* -z initfirst: this runs even before libc's own constructor, which sets environ (glibc
 * csu/init-first.c); constructors get the environment as their third argument. */
__attribute__((constructor)) static void begin(int argc, char **argv, char **environment)
{
    (void)argc;
    (void)argv;
    if (environ == NULL)
        environ = environment;
    gs_others_init();
    gs_log_init();
    configure(&gs_runtime.config);
    pthread_atfork(gs_gift_before_fork, gs_gift_after_fork, in_child);
}

__attribute__((destructor)) static void end(void)
{
    static bool said;

    if (gs_runtime.config.disabled)
        return;
    if (!gs_stats_any() && (gs_stats_any_escaped() || gs_driver_was_used())) {
        static const char text[] = "CUDA was used, but nothing of it reached gpushare: this "
                                   "program did not share the GPU";

        gs_say_once(&said, "%s (see docs/guide.md, \"Nothing was routed\")", text);
        gs_connect_last_word(GS_NOTE_UNROUTED, text);
    }
    if (gs_runtime.config.stats != NULL)
        gs_stats_write(gs_runtime.config.stats);
}

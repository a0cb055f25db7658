/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.c: counts look-ups and remembers which names and which objects were routed.
 *
 * State: counters (relaxed), two small sets under one lock (rank GS_LOCK_STATS); the sets are
 * bounded, the counters are not.
 */
#include "runtime/base/stats.h"

#include <dlfcn.h>

#define MAX_OBJECTS 256

static struct {
    _Atomic(uint64_t) lookups, dlsyms, substituted, escaped;
    _Atomic(bool) called;
    bool seen[GS_ROW_COUNT];    /* names for which a wrapper was returned */
    void *objects[MAX_OBJECTS]; /* load addresses of the objects that asked */
    uint64_t object_names[MAX_OBJECTS];
    unsigned object_count;
} stats;
static pthread_mutex_t lock GS_ZERO_IN_CHILD;

void gs_stats_lookup(void)
{
    atomic_fetch_add_explicit(&stats.lookups, 1, memory_order_relaxed);
}

static void remember_object(void *caller)
{
    Dl_info info;

    if (dladdr(caller, &info) == 0)
        return;
    GS_HOLD(&lock, GS_LOCK_STATS);
    for (unsigned i = 0; i < stats.object_count; i++)
        if (stats.objects[i] == info.dli_fbase) {
            stats.object_names[i]++;
            return;
        }
    if (stats.object_count < MAX_OBJECTS) {
        stats.object_names[stats.object_count] = 1;
        stats.objects[stats.object_count++] = info.dli_fbase;
    }
}

void gs_stats_routed(unsigned row, void *caller, bool substituted)
{
    atomic_fetch_add_explicit(&stats.dlsyms, 1, memory_order_relaxed);
    if (!substituted)
        return;
    atomic_fetch_add_explicit(&stats.substituted, 1, memory_order_relaxed);
    if (gs_runtime.config.stats == NULL)
        return;
    remember_object(caller);
    GS_WITH(&lock, GS_LOCK_STATS, stats.seen[row] = true);
}

void gs_stats_escaped(void)
{
    atomic_fetch_add_explicit(&stats.escaped, 1, memory_order_relaxed);
}

void gs_stats_called(void)
{
    atomic_store_explicit(&stats.called, true, memory_order_relaxed);
}

bool gs_stats_any_escaped(void)
{
    return atomic_load_explicit(&stats.escaped, memory_order_relaxed) != 0;
}

bool gs_stats_any(void)
{
    return atomic_load_explicit(&stats.called, memory_order_relaxed) ||
           atomic_load_explicit(&stats.substituted, memory_order_relaxed) != 0;
}

int gs_stats_write(const char *path, uint64_t calls)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    FILE *file = fopen(path, "we");
    uint64_t names = 0;

    if (file == NULL)
        return -errno;
    gs_lock(&lock, GS_LOCK_STATS);
    for (int i = 0; i < GS_ROW_COUNT; i++)
        names += stats.seen[i];
    const struct {
        const char *name;
        uint64_t value;
    } figures[] = {{"lookups", stats.lookups},
                   {"dlsyms", stats.dlsyms},
                   {"substituted", stats.substituted},
                   {"escaped", stats.escaped},
                   {"names", names},
                   {"gated_calls", calls},
                   {"moved_out", gs_counts.moved_out},
                   {"moved_in", gs_counts.moved_in},
                   {"saved_equal", gs_counts.saved.equal},
                   {"saved_zero", gs_counts.saved.zero},
                   {"saved_unchanged", gs_counts.saved.unchanged},
                   {"given", gs_counts.given},
                   {"taken_over", gs_counts.taken_over},
                   {"exchanged", gs_counts.exchanged},
                   {"switches", gs_counts.switches},
                   {"uncovered", gs_runtime.uncovered}};

    fprintf(file, "{\n  \"pid\": %d,\n", (int)getpid());
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        fprintf(file, "  \"%s\": %llu,\n", figures[i].name,
                (unsigned long long)figures[i].value);
    fprintf(file, "  \"objects\": [");
    for (unsigned i = 0; i < stats.object_count; i++) {
        Dl_info info;
        const char *name = dladdr(stats.objects[i], &info) != 0 ? info.dli_fname : "?";

        fprintf(file, "%s\n    {\"names\": %llu, \"path\": \"", i != 0 ? "," : "",
                (unsigned long long)stats.object_names[i]);
        for (; *name != '\0'; name++)
            if (*name != '"' && *name != '\\' && (unsigned char)*name >= 32)
                fputc(*name, file);
        fprintf(file, "\"}");
    }
    fprintf(file, "\n  ]\n");
    fprintf(file, "}\n");
    gs_unlock(&lock, GS_LOCK_STATS);
    return fclose(file) != 0 ? -errno : 0;
}

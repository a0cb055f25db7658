/* SPDX-License-Identifier: Apache-2.0
 *
 * uses.c: notes which chunks are used (uses.h).
 *
 * A kernel that gets an address is assumed to use everything from there to the next address that
 * some kernel gets, or to the end of the allocation: frameworks cut large allocations into the
 * pieces that their kernels work on. Memory of the program's own that lies side by side
 * (expandable segments) counts as one allocation.
 *
 * State: the bytes of each chunk (in struct gs_chunk), their sum, and the addresses of this
 * window and the window before, and of executable graphs the addresses that their kernels get and
 * how often they were launched; under gs_memory_lock. Any thread.
 */
#include "runtime/range/uses.h"
#include "runtime/gate/gate.h"
#include "runtime/range/range.h"

#define PARAMS_MOST  256 /* parameters of a kernel */
#define STARTS_MOST  8192
#define LAUNCH_WORDS 512u /* that are looked at for one launch */
#define GRAPHS_MOST  128u
#define NODES_MOST   65536u
#define WORDS_MOST   4096u /* addresses of a graph */
#define DEPTH_MOST   4u    /* graphs in graphs */

/* An address that a kernel got. */
struct start {
    uint64_t address;
    uint64_t launch; /* the last launch that had it */
    bool old;        /* seen in the window before, and not in this window */
};

_Atomic(bool) gs_uses_noted GS_ZERO_IN_CHILD;
static uint64_t sum GS_ZERO_IN_CHILD;
static uint64_t anchor GS_ZERO_IN_CHILD; /* address; 0: that of the next use */
static bool came_back GS_ZERO_IN_CHILD;  /* that memory was used again */
static struct start starts[STARTS_MOST]; /* by address */
static unsigned start_count GS_ZERO_IN_CHILD;
static uint64_t launch; /* the number of the noted launch */

void gs_uses_begin(void)
{
    if (atomic_exchange_explicit(&gs_uses_noted, true, memory_order_relaxed))
        return;
    gs_gate_observe();
}

/* under the lock */
static void note_span(struct gs_range *range, uint64_t from, uint64_t to, uint64_t times)
{
    const uint64_t base = range->node.base;

    if (anchor == 0)
        anchor = base + from;
    else
        came_back |= base + from <= anchor && anchor < base + to;
    for (uint64_t i = from / range->chunk_bytes;
         i < range->chunk_count && i * range->chunk_bytes < to; i++) {
        const uint64_t start = i * range->chunk_bytes,
                       end = start + gs_range_chunk_bytes(range, (uint32_t)i);
        const uint64_t bytes = ((to < end ? to : end) - (from > start ? from : start)) * times;

        range->chunks[i].used += bytes;
        sum += bytes;
    }
}

void gs_uses_span(CUdeviceptr address, uint64_t bytes)
{
    struct gs_range *range;

    if (address == 0 || bytes == 0)
        return;
    GS_HOLD_MEMORY;
    range = gs_range_at(address);
    if (range != NULL && range->theirs == NULL) {
        const uint64_t from = address - range->node.base;
        const uint64_t most = range->reserved - from;

        note_span(range, from, from + (bytes < most ? bytes : most), 1);
    }
}

/* Under the lock: the index of the first start that is not below the address. */
static unsigned find_start(uint64_t address)
{
    unsigned low = 0, high = start_count;

    while (low < high) {
        const unsigned middle = (low + high) / 2;

        if (starts[middle].address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Under the lock: notes this start, and returns the next one behind it. 0: this launch had it
 * already, since kernels of libraries get an address in several parameters. */
static uint64_t note_start(uint64_t address)
{
    unsigned at = find_start(address);

    if (at == start_count || starts[at].address != address) {
        if (start_count == STARTS_MOST)
            at = start_count = 0; /* the table is full: forgets all */
        memmove(&starts[at + 1], &starts[at], (start_count - at) * sizeof starts[0]);
        starts[at] = (struct start){.address = address};
        start_count++;
    }
    if (starts[at].launch == launch)
        return 0;
    starts[at].launch = launch;
    starts[at].old = false;
    return at + 1 < start_count ? starts[at + 1].address : UINT64_MAX;
}

/* under the lock */
static struct gs_range *movable_at(uint64_t address)
{
    struct gs_range *range = address != 0 ? gs_range_at(address) : NULL;

    return range != NULL && range->theirs == NULL && range->chunk_count != 0 ? range : NULL;
}

/* under the lock */
static void note_word(uint64_t word, uint64_t times)
{
    struct gs_range *range = movable_at(word);
    const uint64_t next = range != NULL ? note_start(word) : 0;

    while (range != NULL && word < next) {
        const uint64_t end = range->node.base + range->reserved;

        note_span(range, word - range->node.base, (next < end ? next : end) - range->node.base,
                  times);
        word = end;
        range = range->own != NULL ? movable_at(end) : NULL;
        if (range != NULL && range->own == NULL)
            range = NULL;
    }
}

static unsigned add_words(uint64_t *words, unsigned count, const void *from, uint64_t bytes)
{
    for (uint64_t at = 0; at + 8 <= bytes && count < LAUNCH_WORDS; at += 8)
        memcpy(&words[count++], (const char *)from + at, 8);
    return count;
}

/* The launched function may be a handle of either kind. */
static bool parameter_bytes(CUfunction function, unsigned index, size_t *bytes)
{
    size_t offset;

    return gs_driver.cuFuncGetParamInfo(function, index, &offset, bytes) == CUDA_SUCCESS ||
           gs_driver.cuKernelGetParamInfo((CUkernel)function, index, &offset, bytes) ==
               CUDA_SUCCESS;
}

/* The 8-byte words of such parameters; returns how many. */
static unsigned words_of(CUfunction function, void **params, void **extra,
                         uint64_t words[LAUNCH_WORDS])
{
    unsigned count = 0;
    size_t bytes = 0;
    const void *buffer = NULL;

    for (unsigned i = 0;
         params != NULL && i < PARAMS_MOST && parameter_bytes(function, i, &bytes); i++)
        count = add_words(words, count, params[i], bytes);
    for (; params == NULL && extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2)
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
    return buffer != NULL ? add_words(words, count, buffer, bytes) : count;
}

void gs_uses_launch(CUfunction function, void **params, void **extra)
{
    uint64_t words[LAUNCH_WORDS];
    const unsigned count = function != NULL ? words_of(function, params, extra, words) : 0;

    if (count == 0)
        return;
    GS_HOLD_MEMORY;
    launch++;
    for (unsigned i = 0; i < count; i++)
        note_word(words[i], 1);
}

uint64_t gs_uses_take(void)
{
    GS_HOLD_MEMORY;
    uint64_t taken = sum;

    sum = 0;
    return taken;
}

bool gs_uses_came_back(void)
{
    GS_HOLD_MEMORY;

    return came_back;
}

void gs_uses_anchor(bool anew)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    came_back = false;
    if (anew)
        anchor = 0;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

void gs_uses_age(void)
{
    unsigned kept = 0;

    GS_HOLD_MEMORY;
    for (unsigned i = 0; i < start_count; i++)
        if (!starts[i].old)
            starts[kept++] = (struct start){.address = starts[i].address, .old = true};
    start_count = kept;
}

/* --- graphs --- */

/* Addresses that are being collected. */
struct addresses {
    uint64_t word[WORDS_MOST];
    unsigned count;
    bool full; /* of different graphs: others are not collected */
};

/* Nothing tells that an executable graph is destroyed: the graph that was launched longest ago
 * gives way to a new graph, and an old handle of the same value is overwritten. */
static struct known_graph {
    CUgraphExec exec; /* NULL: the place is free */
    uint64_t *words;
    unsigned count;
    uint64_t launches, launched_at; /* since the last look; in the order of launches */
} known[GRAPHS_MOST] GS_ZERO_IN_CHILD;
static uint64_t graph_launches GS_ZERO_IN_CHILD;

static int compare_words(const void *one, const void *other)
{
    const uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

static void drop_doubles(struct addresses *all)
{
    unsigned kept = 0;

    qsort(all->word, all->count, sizeof all->word[0], compare_words);
    for (unsigned i = 0; i < all->count; i++)
        if (kept == 0 || all->word[kept - 1] != all->word[i])
            all->word[kept++] = all->word[i];
    all->count = kept;
    all->full = kept > WORDS_MOST * 3 / 4;
}

static void collect_words(struct addresses *all, const uint64_t *words, unsigned count)
{
    if (all->full)
        return;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; i < count && all->count < WORDS_MOST; i++)
        if (movable_at(words[i]) != NULL)
            all->word[all->count++] = words[i];
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (all->count == WORDS_MOST)
        drop_doubles(all);
}

static void add_node(CUgraphNode node, CUgraphNodeType type, void *all)
{
    uint64_t words[LAUNCH_WORDS];
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMSET_NODE_PARAMS set;

    if (type == CU_GRAPH_NODE_TYPE_KERNEL &&
        gs_driver.cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_SUCCESS) {
        const CUfunction function = kernel.func != NULL ? kernel.func : (CUfunction)kernel.kern;

        collect_words(all, words, words_of(function, kernel.kernelParams, kernel.extra, words));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET &&
               gs_driver.cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS) {
        words[0] = set.dst;
        collect_words(all, words, 1);
    }
}

static void walk_graph(CUgraph graph, gs_graph_visit *visit, void *context, unsigned depth)
{
    CUgraphNodeType type;
    CUgraphNode *nodes;
    CUgraph child;
    size_t count = 0;

    if (gs_driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0 ||
        count > NODES_MOST)
        return;
    nodes = calloc(count, sizeof(CUgraphNode));
    if (nodes != NULL && gs_driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++) {
            if (gs_driver.cuGraphNodeGetType(nodes[i], &type) != CUDA_SUCCESS)
                continue;
            visit(nodes[i], type, context);
            if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MOST &&
                gs_driver.cuGraphChildGraphNodeGetGraph(nodes[i], &child) == CUDA_SUCCESS)
                walk_graph(child, visit, context, depth + 1);
        }
    free(nodes);
}

void gs_graph_walk(CUgraph graph, gs_graph_visit *visit, void *context)
{
    GS_KEEP_ERRNO;

    walk_graph(graph, visit, context, 1);
}

/* Under the lock; NULL: it is not known. */
static struct known_graph *find_graph(CUgraphExec exec)
{
    for (unsigned i = 0; i < GRAPHS_MOST; i++)
        if (known[i].exec == exec)
            return &known[i];
    return NULL;
}

/* Takes the words. */
static void keep_graph(CUgraphExec exec, uint64_t *words, unsigned count)
{
    struct known_graph *place;
    uint64_t *before;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    place = find_graph(exec);
    if (place == NULL)
        place = find_graph(NULL);
    if (place == NULL) {
        place = &known[0];
        for (unsigned i = 1; i < GRAPHS_MOST; i++)
            if (known[i].launched_at < place->launched_at)
                place = &known[i];
    }
    before = place->words;
    *place = (struct known_graph){
        .exec = exec, .words = words, .count = count, .launched_at = graph_launches};
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(before);
}

void gs_graph_uses_made(CUgraphExec exec, CUgraph graph)
{
    GS_KEEP_ERRNO;
    GS_FREE struct addresses *all = exec != NULL && graph != NULL ? malloc(sizeof *all) : NULL;
    uint64_t *words;

    if (all == NULL)
        return;
    all->count = 0;
    all->full = false;
    gs_graph_walk(graph, add_node, all);
    drop_doubles(all);
    words = malloc((all->count + 1) * sizeof *words);
    if (words != NULL) {
        memcpy(words, all->word, all->count * sizeof *words);
        keep_graph(exec, words, all->count);
    }
}

void gs_graph_uses_launched(CUgraphExec exec)
{
    struct known_graph *graph;

    if (exec == NULL)
        return;
    GS_HOLD_MEMORY;
    graph = find_graph(exec);
    if (graph != NULL) {
        graph->launches++;
        graph->launched_at = ++graph_launches;
    }
}

void gs_graph_uses_note(void)
{
    for (unsigned i = 0; i < GRAPHS_MOST; i++) {
        struct known_graph *graph = &known[i];

        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        for (unsigned k = 0; k < graph->count && graph->launches != 0; k++) {
            launch++;
            note_word(graph->words[k], graph->launches);
        }
        graph->launches = 0;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * graph_uses.c: owns what is known of executable graphs: the addresses that their kernels get, and
 * how often they were launched (graph_uses.h).
 *
 * Nothing tells that an executable graph is destroyed: the graph that was launched longest ago
 * gives way to a new graph, and an old handle of the same value is overwritten. State: under
 * gs_memory_lock. Any thread.
 */
#include "runtime/range/graph_uses.h"
#include "runtime/range/uses.h"

#define GRAPHS_MOST 128u
#define NODES_MOST  65536u
#define WORDS_MOST  4096u /* addresses of a graph */
#define DEPTH_MOST  4u    /* graphs in graphs */

/* Addresses that are being collected. */
struct addresses {
    uint64_t word[WORDS_MOST];
    unsigned count;
    bool full; /* of different graphs: others are not collected */
};

static struct known_graph {
    CUgraphExec exec; /* NULL: the place is free */
    uint64_t *words;
    unsigned count;
    uint64_t launches, launched_at; /* since the last look; in the order of launches */
} known[GRAPHS_MOST] GS_ZERO_IN_CHILD;
static uint64_t launch_count GS_ZERO_IN_CHILD;

/* --- what a graph uses --- */

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

static void add_words(struct addresses *all, const uint64_t *words, unsigned count)
{
    if (all->full)
        return;
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; i < count && all->count < WORDS_MOST; i++)
        if (gs_uses_is_movable(words[i]))
            all->word[all->count++] = words[i];
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (all->count == WORDS_MOST)
        drop_doubles(all);
}

static void add_graph(struct addresses *all, CUgraph graph, unsigned depth);

static void add_node(struct addresses *all, CUgraphNode node, unsigned depth)
{
    uint64_t words[GS_USES_WORDS];
    CUDA_KERNEL_NODE_PARAMS_v2 kernel;
    CUDA_MEMSET_NODE_PARAMS set;
    CUgraphNodeType type;
    CUgraph child;

    if (gs_driver.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS)
        return;
    if (type == CU_GRAPH_NODE_TYPE_KERNEL &&
        gs_driver.cuGraphKernelNodeGetParams_v2(node, &kernel) == CUDA_SUCCESS) {
        const CUfunction function = kernel.func != NULL ? kernel.func : (CUfunction)kernel.kern;

        add_words(all, words,
                  gs_uses_words(function, kernel.kernelParams, kernel.extra, words));
    } else if (type == CU_GRAPH_NODE_TYPE_MEMSET &&
               gs_driver.cuGraphMemsetNodeGetParams(node, &set) == CUDA_SUCCESS) {
        words[0] = set.dst;
        add_words(all, words, 1);
    } else if (type == CU_GRAPH_NODE_TYPE_GRAPH && depth < DEPTH_MOST &&
               gs_driver.cuGraphChildGraphNodeGetGraph(node, &child) == CUDA_SUCCESS) {
        add_graph(all, child, depth + 1);
    }
}

static void add_graph(struct addresses *all, CUgraph graph, unsigned depth)
{
    CUgraphNode *nodes;
    size_t count = 0;

    if (gs_driver.cuGraphGetNodes(graph, NULL, &count) != CUDA_SUCCESS || count == 0 ||
        count > NODES_MOST)
        return;
    nodes = calloc(count, sizeof(CUgraphNode));
    if (nodes != NULL && gs_driver.cuGraphGetNodes(graph, nodes, &count) == CUDA_SUCCESS)
        for (size_t i = 0; i < count; i++)
            add_node(all, nodes[i], depth);
    free(nodes);
}

/* --- executable graphs --- */

/* Under the lock; NULL: it is not known. */
static struct known_graph *find_graph(CUgraphExec exec)
{
    for (unsigned i = 0; i < GRAPHS_MOST; i++)
        if (known[i].exec == exec)
            return &known[i];
    return NULL;
}

static struct known_graph *find_oldest(void)
{
    struct known_graph *oldest = &known[0];

    for (unsigned i = 1; i < GRAPHS_MOST; i++)
        if (known[i].launched_at < oldest->launched_at)
            oldest = &known[i];
    return oldest;
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
    if (place == NULL)
        place = find_oldest();
    before = place->words;
    *place = (struct known_graph){
        .exec = exec, .words = words, .count = count, .launched_at = launch_count};
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    free(before);
}

void gs_graph_uses_made(CUgraphExec exec, CUgraph graph)
{
    const int saved = errno;
    struct addresses *all = exec != NULL && graph != NULL ? malloc(sizeof *all) : NULL;
    uint64_t *words;

    if (all == NULL) {
        errno = saved;
        return;
    }
    all->count = 0;
    all->full = false;
    add_graph(all, graph, 1);
    drop_doubles(all);
    words = malloc((all->count + 1) * sizeof *words);
    if (words != NULL) {
        memcpy(words, all->word, all->count * sizeof *words);
        keep_graph(exec, words, all->count);
    }
    free(all);
    errno = saved;
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
        graph->launched_at = ++launch_count;
    }
}

void gs_graph_uses_note(void)
{
    for (unsigned i = 0; i < GRAPHS_MOST; i++) {
        struct known_graph *graph = &known[i];

        gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
        for (unsigned k = 0; k < graph->count && graph->launches != 0; k++)
            gs_uses_word(graph->words[k], graph->launches);
        graph->launches = 0;
        gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    }
}

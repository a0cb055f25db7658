/* SPDX-License-Identifier: Apache-2.0
 *
 * host_chunk.c: owns mappings of host memory at device addresses (cuMemCreate at HOST_NUMA),
 * which the card reaches over its bus, and the time that operations take for memory.
 *
 * With a rate (SIMCUDA_HOST_GBPS) their pages of 2 MiB are closed when an operation begins, so
 * that its first touch of each is seen, counted, and takes the page's time on the bus. Without one
 * they are as fast as the card's own memory, and nothing is counted. With SIMCUDA_CARD_GBPS the
 * card's own pages are watched as well. Of an operation that runs meanwhile on another stream pages
 * may be counted twice.
 *
 * The model: an operation asks for pages in the order in which it touches them, and has at most
 * WINDOW of them under way. The card and the bus serve one page each at a time, both at once. So an
 * operation that finds pages of both kinds within each window takes the longer of the two times,
 * and one that comes to all of a kind first and to the others then takes their sum.
 *
 * State: the list of mappings and their open pages, under a lock of its own, which comes after
 * sim.lock; the fault handler takes it. Each thread has the operation that it runs. Threads: any.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include "tests/simcuda/sim.h"

#define WINDOW 16u /* pages */

struct host_mapping {
    struct host_mapping *next;
    struct sim_range range;
    bool host;      /* else the card's own */
    int protection; /* that its access gives */
    bool any_open;
    uint64_t closed; /* a number of its own for each time at which all its pages were closed */
    uint8_t open[];  /* of each page */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_mapping *all;
static uint64_t bus_free_ns; /* CLOCK_MONOTONIC; under the lock */
static uint64_t closings;    /* under the lock */

/* The thread's newest fault at a page that was open. */
static __thread struct {
    CUdeviceptr address;
    uint64_t closed;
} found_open;

/* Times are ns since it began. */
static __thread struct {
    bool runs;
    uint64_t began;         /* CLOCK_MONOTONIC */
    uint64_t card, bus;     /* each is busy until then */
    uint64_t last;          /* the last page is there, and all before it */
    uint64_t there[WINDOW]; /* the same of earlier ones */
    uint64_t pages;
} operation;

static uint64_t read_rate(bool host)
{
    const struct sim_properties *properties = &sim.device[0].card->properties;

    return host || !properties->host_rate ? properties->host_rate : properties->card_rate;
}

static void *page_at(const struct host_mapping *mapping, size_t page)
{
    return (void *)(mapping->range.start + page * SIM_PAGE);
}

CUresult sim_host_chunk_map(CUdeviceptr start, size_t size, bool host)
{
    struct host_mapping *mapping;

    if (!read_rate(host))
        return CUDA_SUCCESS;
    mapping = calloc(1, sizeof *mapping + size / SIM_PAGE);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->range = (struct sim_range){start, size};
    mapping->host = host;
    sim_faults_catch();
    pthread_mutex_lock(&lock);
    mapping->closed = ++closings;
    mapping->next = all;
    all = mapping;
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

/* Under the lock; NULL: none. */
static struct host_mapping **find_mapping(CUdeviceptr address)
{
    struct host_mapping **at = &all;

    while (*at &&
           (address < (*at)->range.start || address - (*at)->range.start >= (*at)->range.size))
        at = &(*at)->next;
    return at;
}

void sim_host_chunk_unmap(CUdeviceptr start)
{
    pthread_mutex_lock(&lock);
    struct host_mapping **at = find_mapping(start), *mapping = *at;
    if (mapping)
        *at = mapping->next;
    pthread_mutex_unlock(&lock);
    free(mapping);
}

/* Under the lock. */
static void close_pages(struct host_mapping *mapping)
{
    mprotect(page_at(mapping, 0), mapping->range.size, PROT_NONE);
    for (size_t page = 0; page < mapping->range.size / SIM_PAGE; page++)
        mapping->open[page] = 0;
    mapping->any_open = false;
    mapping->closed = ++closings;
}

bool sim_host_chunk_protect(CUdeviceptr start, int protection)
{
    pthread_mutex_lock(&lock);
    struct host_mapping *mapping = *find_mapping(start);
    if (mapping) {
        mapping->protection = protection;
        close_pages(mapping);
    }
    pthread_mutex_unlock(&lock);
    return mapping != NULL;
}

void sim_host_chunk_begin(void)
{
    operation.runs = true;
    operation.began = sim_now_ns();
    operation.card = operation.bus = operation.last = operation.pages = 0;
    pthread_mutex_lock(&lock);
    for (struct host_mapping *mapping = all; mapping; mapping = mapping->next)
        if (mapping->any_open)
            close_pages(mapping);
    pthread_mutex_unlock(&lock);
}

uint64_t simcuda_memory_ns(void)
{
    return __atomic_load_n(&sim_stats.memory_ns, __ATOMIC_RELAXED);
}

void sim_host_chunk_end(void)
{
    operation.runs = false;
    if (operation.pages == 0)
        return;
    sim_count(&sim_stats.memory_ns, operation.last);
    sim_sleep_until(operation.began + operation.last);
    operation.pages = 0;
}

/* Under the lock. Returns how long the operation waits before it gets that far. */
static uint64_t serve_page(bool host)
{
    uint64_t *busy = host ? &operation.bus : &operation.card;
    uint64_t *slot = &operation.there[operation.pages % WINDOW];
    const uint64_t room = operation.pages < WINDOW ? 0 : *slot;
    uint64_t start = room > *busy ? room : *busy;

    if (host && bus_free_ns > operation.began + start)
        start = bus_free_ns - operation.began; /* other operations */
    *busy = start + (uint64_t)((double)SIM_PAGE * 1e9 / (double)read_rate(host));
    if (host)
        bus_free_ns = operation.began + *busy;
    if (*busy > operation.last)
        operation.last = *busy;
    *slot = operation.last;
    operation.pages++;
    return operation.began + room;
}

/* Under the lock: a fault at an open page. True: another thread has opened the page since the
 * access; at the second such fault since the page was closed, the access has no right to it. */
static bool touch_again(const struct host_mapping *mapping, CUdeviceptr address)
{
    const bool again = found_open.address != address || found_open.closed != mapping->closed;

    found_open.address = address;
    found_open.closed = mapping->closed;
    return again;
}

bool sim_host_chunk_touch(CUdeviceptr address)
{
    uint64_t until = 0;

    pthread_mutex_lock(&lock);
    struct host_mapping *mapping = *find_mapping(address);
    const size_t page = mapping ? (address - mapping->range.start) / SIM_PAGE : 0;
    const bool closed = mapping && !mapping->open[page];
    const bool good = mapping && mapping->protection != PROT_NONE;
    if (closed && good) {
        if (operation.runs)
            until = serve_page(mapping->host);
        mapping->open[page] = 1;
        mapping->any_open = true;
        if (mapping->host)
            sim_count(&sim_stats.host_chunk_bytes, SIM_PAGE);
    }
    if (good)
        mprotect(page_at(mapping, page), SIM_PAGE, mapping->protection);
    const bool open = good && (closed || touch_again(mapping, address));
    pthread_mutex_unlock(&lock);
    if (until)
        sim_sleep_until(until);
    return open;
}

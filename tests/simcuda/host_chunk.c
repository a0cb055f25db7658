/* SPDX-License-Identifier: Apache-2.0
 *
 * host_chunk.c: owns mappings of host memory at device addresses (cuMemCreate at HOST_NUMA),
 * which the card reaches over its bus.
 *
 * With a rate (SIMCUDA_HOST_GBPS) their pages of 2 MiB are closed when an operation begins, so
 * that its first touch of each is seen, counted, and takes the page's time on the bus. Without one
 * they are as fast as the card's own memory, and nothing is counted. Of an operation that runs
 * meanwhile on another stream pages may be counted twice.
 *
 * State: the list of mappings and their open pages, under a lock of its own, which comes after
 * sim.lock; the fault handler takes it. Threads: any.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include "tests/simcuda/sim.h"

struct host_mapping {
    struct host_mapping *next;
    struct sim_range range;
    int protection; /* that its access gives */
    bool any_open;
    uint8_t open[]; /* of each page */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct host_mapping *all;
static uint64_t bus_free_ns; /* CLOCK_MONOTONIC; under the lock */

static uint64_t read_rate(void)
{
    return sim.device[0].card->properties.host_rate;
}

static void *page_at(const struct host_mapping *mapping, size_t page)
{
    return (void *)(mapping->range.start + page * SIM_PAGE);
}

CUresult sim_host_chunk_map(CUdeviceptr start, size_t size)
{
    struct host_mapping *mapping;

    if (!read_rate())
        return CUDA_SUCCESS;
    mapping = calloc(1, sizeof *mapping + size / SIM_PAGE);
    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->range = (struct sim_range){start, size};
    sim_faults_catch();
    pthread_mutex_lock(&lock);
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

void sim_host_chunk_close(void)
{
    pthread_mutex_lock(&lock);
    for (struct host_mapping *mapping = all; mapping; mapping = mapping->next)
        if (mapping->any_open)
            close_pages(mapping);
    pthread_mutex_unlock(&lock);
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
        const uint64_t now = sim_now_ns();

        until = bus_free_ns; /* a page is booked ahead: sleeping late costs no bandwidth */
        bus_free_ns = (now > bus_free_ns ? now : bus_free_ns) +
                      (uint64_t)((double)SIM_PAGE * 1e9 / (double)read_rate());
        mapping->open[page] = 1;
        mapping->any_open = true;
        sim_count(&sim_stats.host_chunk_bytes, SIM_PAGE);
    }
    if (good) {
        /* what is open and faults is written without the right to */
        mprotect(page_at(mapping, page), SIM_PAGE, mapping->protection);
    }
    pthread_mutex_unlock(&lock);
    if (until)
        sim_sleep_until(until);
    return closed && good;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * memory.c: owns the device addresses of this process and the memory of the cards behind them.
 *
 * All device addresses lie in one arena, reserved PROT_NONE when the driver starts. Memory of a
 * card is a range of a memfd (offsets are never used twice: freed ranges are punched out),
 * mapped MAP_SHARED at its device address, so that stand-ins and copies use device pointers as
 * they are, and whatever is not mapped faults. Memory that can be shared is a file (shared.c).
 *
 * Invariants: sim_places holds every used part of the arena; every mapping lies in one place;
 * memory is counted on the card from sim_physical_new() until neither handle nor mapping refers
 * to it, of any process if it is shared; nothing in the arena, and no reference to shared
 * memory but descriptors that the program has, is inherited by a child. Threads: any, under
 * sim.lock (dropped while fresh memory is filled).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/simcuda/managed.h"

#define ARENA_MOST  (1ull << 40)
#define ARENA_LEAST (1ull << 34)

struct sim_ranges sim_places, sim_reservations, sim_mappings, sim_allocations;

static CUdeviceptr arena_start, arena_end, arena_cursor;

/* -- the arena -- */

static void *host_address(CUdeviceptr address)
{
    return (void *)address;
}

CUresult sim_memory_init(void)
{
    for (uint64_t size = ARENA_MOST; size >= ARENA_LEAST && !arena_start; size /= 2) {
        void *map =
            mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (map == MAP_FAILED)
            continue;
        madvise(map, size, MADV_DONTFORK);
        /* a page at both ends stays free: what reads beside the arena finds nothing of the
         * host's */
        arena_start = ((CUdeviceptr)map + 2 * SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
        arena_end = ((CUdeviceptr)map + size) / SIM_PAGE * SIM_PAGE - SIM_PAGE;
        arena_cursor = arena_start;
    }
    return arena_start ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool sim_in_arena(CUdeviceptr address)
{
    return address >= arena_start - SIM_PAGE && address < arena_end + SIM_PAGE;
}

/* First free place at or behind from, 0 if there is none. */
static CUdeviceptr place_search(CUdeviceptr from, size_t size, size_t alignment)
{
    CUdeviceptr start = (from + alignment - 1) / alignment * alignment;

    for (size_t i = sim_ranges_after(&sim_places, start); i < sim_places.count; i++) {
        const struct sim_range *used = sim_places.item[i];
        if (start + size <= used->start)
            break;
        start = (used->start + used->size + alignment - 1) / alignment * alignment;
    }
    return start >= from && start < arena_end && size <= arena_end - start ? start : 0;
}

struct sim_range *sim_place_take(size_t size, size_t alignment, CUdeviceptr hint)
{
    struct sim_range *place = calloc(1, sizeof *place);
    CUdeviceptr start = 0;

    if (!place || !size || size > arena_end - arena_start ||
        alignment > arena_end - arena_start) {
        free(place);
        return NULL;
    }
    if (hint >= arena_start && hint < arena_end && hint % alignment == 0 &&
        size <= arena_end - hint && !sim_ranges_overlap(&sim_places, hint, size))
        start = hint;
    if (!start) /* addresses are reused late, so that a stale pointer faults */
        start = place_search(arena_cursor, size, alignment);
    if (!start)
        start = place_search(arena_start, size, alignment);
    *place = (struct sim_range){start, size};
    if (!start || sim_ranges_insert(&sim_places, place)) {
        free(place);
        return NULL;
    }
    if (start != hint)
        arena_cursor = start + size;
    return place;
}

void sim_place_drop(struct sim_range *place)
{
    sim_ranges_remove(&sim_places, place);
    free(place);
}

/* -- memory of a card -- */

static CUresult fill_fresh(int fd, uint64_t offset, size_t size)
{
    static const size_t piece_size = 1u << 20;
    char *piece = malloc(piece_size);
    CUresult result = piece ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    if (piece)
        memset(piece, SIM_POISON_FRESH, piece_size);
    for (size_t done = 0; !result && done < size;) {
        const size_t left = size - done;
        const ssize_t wrote =
            pwrite(fd, piece, left < piece_size ? left : piece_size, (off_t)(offset + done));
        if (wrote <= 0)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else
            done += (size_t)wrote;
    }
    free(piece);
    return result;
}

static CUresult extend_file(struct sim_physical *physical)
{
    struct sim_device *device = &sim.device[physical->device];

    if (ftruncate(device->memory_fd, (off_t)(device->memory_end + physical->size)))
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->fd = device->memory_fd;
    physical->offset = device->memory_end;
    device->memory_end += physical->size;
    return CUDA_SUCCESS;
}

/* A range of this process's own memory on the card. */
static CUresult take_range(struct sim_physical *physical)
{
    const struct sim_device *device = &sim.device[physical->device];

    if (sim_card_charge(device->card, device->client, physical->size)) {
        sim_managed_make_room(physical->device, physical->size);
        if (sim_card_charge(device->card, device->client, physical->size))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (extend_file(physical)) {
        sim_card_refund(device->card, device->client, physical->size);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static void count_shared(unsigned number, uint32_t more)
{
    const struct sim_device *device = &sim.device[number];

    __atomic_add_fetch(&device->card->client[device->client].shared, more, __ATOMIC_SEQ_CST);
}

/* A file of its own. */
static CUresult take_shared(struct sim_physical *physical)
{
    const struct sim_device *device = &sim.device[physical->device];
    const int rc = sim_shared_new(device->card, device->client, physical->size,
                                  &physical->shared, &physical->fd);

    if (rc && rc != -ENOMEM)
        sim_log("memory that can be shared, %zu bytes: %s", physical->size, strerror(-rc));
    if (!rc)
        count_shared(physical->device, 1);
    return rc ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

static void shared_put(struct sim_physical *physical)
{
    close(physical->fd);
    if (physical->imported)
        munmap(physical->imported, SIM_PAGE);
    sim_shared_put(sim.device[physical->device].card, physical->shared, !physical->imported);
    count_shared(physical->device, -1u);
}

static void physical_free(struct sim_physical *physical)
{
    const struct sim_device *device = &sim.device[physical->device];

    if (!physical->imported && !physical->host)
        sim_stats.memory_bytes -= physical->size;
    if (physical->shared) {
        shared_put(physical);
    } else {
        sim_card_refund(device->card, device->client, physical->host ? 0 : physical->size);
        fallocate(physical->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  (off_t)physical->offset, (off_t)physical->size);
    }
    sim_handle_remove(physical);
    free(physical);
}

CUresult sim_physical_new(unsigned number, size_t size, bool shared, struct sim_physical **out)
{
    struct sim_physical *physical = calloc(1, sizeof *physical);

    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->device = number;
    physical->size = size;
    physical->prop = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)number}};
    CUresult result = shared ? take_shared(physical) : take_range(physical);
    if (result) {
        free(physical);
        return result;
    }
    sim_stats.memory_bytes += size;
    if (sim_stats.memory_bytes > sim_stats.memory_peak)
        sim_stats.memory_peak = sim_stats.memory_bytes;
    if (sim.poison) {
        pthread_mutex_unlock(&sim.lock); /* nobody else knows this memory yet */
        result = fill_fresh(physical->fd, physical->offset, size);
        pthread_mutex_lock(&sim.lock);
    }
    if (result) {
        physical_free(physical);
        return result;
    }
    physical->handles = 1;
    *out = physical;
    return CUDA_SUCCESS;
}

CUresult sim_physical_new_host(size_t size, struct sim_physical **out)
{
    struct sim_physical *physical = calloc(1, sizeof *physical);

    if (!physical)
        return CUDA_ERROR_OUT_OF_MEMORY;
    physical->size = size;
    physical->host = true;
    if (extend_file(physical)) { /* of the first card: it has room for any number of bytes */
        free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    physical->handles = 1;
    *out = physical;
    return CUDA_SUCCESS;
}

CUresult sim_physical_import(int fd, struct sim_physical **out)
{
    uint64_t number = 0, bytes = 0;
    unsigned device = 0;
    struct stat file;

    while (device < sim.device_count &&
           sim_shared_find(sim.device[device].card, fd, &number, &bytes))
        device++;
    if (device == sim.device_count)
        return CUDA_ERROR_INVALID_VALUE;
    struct sim_physical *physical = calloc(1, sizeof *physical);
    void *page = mmap(NULL, SIM_PAGE, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    const int own = sim_shared_reopen(fd);
    if (!physical || page == MAP_FAILED || own < 0) {
        if (page != MAP_FAILED)
            munmap(page, SIM_PAGE);
        if (own >= 0)
            close(own);
        free(physical);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(page, SIM_PAGE, MADV_DONTFORK);
    const bool for_network = fstat(own, &file) == 0 && (file.st_mode & 0777) == SIM_FOR_NETWORK;
    *physical = (struct sim_physical){
        .prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                 .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = (int)device}},
        .device = device,
        .size = bytes,
        .fd = own,
        .shared = number,
        .imported = page,
        .for_network = for_network,
        .handles = 1};
    count_shared(device, 1);
    *out = physical;
    return CUDA_SUCCESS;
}

void sim_physical_put(struct sim_physical *physical)
{
    if (!physical->handles)
        sim_handle_remove(physical); /* the handle is dead, mappings may live on */
    if (!physical->handles && !physical->maps)
        physical_free(physical);
}

/* -- mappings -- */

CUresult sim_map(CUdeviceptr start, size_t size, struct sim_physical *physical, size_t offset,
                 struct sim_mapping **out)
{
    struct sim_mapping *mapping = calloc(1, sizeof *mapping);

    if (!mapping)
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->range = (struct sim_range){start, size};
    mapping->physical = physical;
    mapping->offset = offset;
    mapping->access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
    if (sim_ranges_insert(&sim_mappings, &mapping->range)) {
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (mmap(host_address(start), size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
             physical->fd, (off_t)(physical->offset + offset)) == MAP_FAILED) {
        sim_ranges_remove(&sim_mappings, &mapping->range);
        free(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    madvise(host_address(start), size, MADV_DONTFORK);
    physical->maps++;
    if (sim_host_chunk_map(start, size, physical->host)) {
        sim_unmap(mapping);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (out)
        *out = mapping;
    return CUDA_SUCCESS;
}

void sim_unmap(struct sim_mapping *mapping)
{
    struct sim_physical *physical = mapping->physical;
    const struct sim_range range = mapping->range;

    sim_ranges_remove(&sim_mappings, &mapping->range);
    sim_host_chunk_unmap(range.start);
    if (mmap(host_address(range.start), range.size, PROT_NONE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        madvise(host_address(range.start), range.size, MADV_DONTFORK);
    physical->maps--;
    free(mapping);
    sim_physical_put(physical);
}

CUresult sim_protect(struct sim_mapping *mapping, unsigned access)
{
    const int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                           : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                        : PROT_NONE;

    if (sim_host_chunk_protect(mapping->range.start, protection)) {
        mapping->access = access;
        return CUDA_SUCCESS;
    }
    if (mprotect(host_address(mapping->range.start), mapping->range.size, protection))
        return CUDA_ERROR_OUT_OF_MEMORY;
    mapping->access = access;
    return CUDA_SUCCESS;
}

/* -- blocks -- */

CUresult sim_block_new(unsigned device, size_t size, struct sim_block **out)
{
    const size_t whole = (size + SIM_PAGE - 1) / SIM_PAGE * SIM_PAGE;
    struct sim_physical *physical = NULL;
    struct sim_block *block = calloc(1, sizeof *block);

    if (!block || whole < size) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = sim_physical_new(device, whole, false, &physical);
    if (result) {
        free(block);
        return result;
    }
    block->place = sim_place_take(whole, SIM_PAGE, 0);
    result = block->place ? sim_map(block->place->start, whole, physical, 0, &block->mapping)
                          : CUDA_ERROR_OUT_OF_MEMORY;
    physical->handles = 0; /* from here on the mapping alone keeps it */
    if (!block->mapping)
        sim_physical_put(physical);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): the mapping holds physical
    if (block->mapping)
        result = sim_protect(block->mapping, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (result)
        sim_block_free(block);
    else
        *out = block;
    return result;
}

void sim_block_free(struct sim_block *block)
{
    if (block->mapping)
        sim_unmap(block->mapping);
    if (block->place)
        sim_place_drop(block->place);
    free(block);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.c: owns managed memory: where each of its pages is (nowhere yet, on a card, on the
 * host), their way from one to the other by prefetch or by a fault, and what they take of the
 * card.
 *
 * A page of 2 MiB counts on the card only while it is there. Pages elsewhere are protected, so
 * that the card's touch, made by a stream's worker, faults and brings them there; the program's
 * own touch opens them in place. What is not seen: the program's touch of a page on the card
 * (it stays there), and the card's touch of a page that the program has opened. Where a real
 * driver would push out other pages, also those of other programs, the page is used where it
 * is; such touches are counted (and logged), for tests of what must never need that.
 *
 * State: the list of ranges and their pages, under `lock`, which comes after sim.lock and
 * before the locks of a card; the fault handler takes it. Threads: any.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include "tests/simcuda/sim.h"

enum where { NOWHERE, HOST, HOST_OPEN, CARD };

struct sim_managed {
    struct sim_managed *next;
    struct sim_range *place;
    unsigned device;
    size_t pages;
    uint8_t where[];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_managed *all;

static void *page_at(const struct sim_managed *managed, size_t page)
{
    return (void *)(managed->place->start + page * SIM_PAGE);
}

/* Under the lock. False: the card has no room, and nothing has changed. */
static bool page_move(struct sim_managed *managed, size_t page, enum where to)
{
    const struct sim_device *device = &sim.device[managed->device];
    const enum where from = managed->where[page];
    const bool has_bytes = from != NOWHERE;

    if (to == CARD && from != CARD &&
        sim_card_charge(device->card, device->client, SIM_PAGE) != 0)
        return false;
    if (from == CARD && to != CARD)
        sim_card_refund(device->card, device->client, SIM_PAGE);
    mprotect(page_at(managed, page), SIM_PAGE,
             to == CARD || to == HOST_OPEN ? PROT_READ | PROT_WRITE : PROT_NONE);
    managed->where[page] = (uint8_t)to;
    if (to == CARD && from != CARD && has_bytes)
        sim_count(&sim_stats.to_device_bytes, SIM_PAGE);
    else if (from == CARD && to != CARD)
        sim_count(&sim_stats.to_host_bytes, SIM_PAGE);
    return true;
}

CUresult sim_managed_new(unsigned device, size_t size, struct sim_managed **out)
{
    const size_t pages = size / SIM_PAGE + (size % SIM_PAGE != 0);
    struct sim_managed *managed = calloc(1, sizeof *managed + pages);

    if (!managed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    managed->place = sim_place_take(pages * SIM_PAGE, SIM_PAGE, 0);
    if (!managed->place) {
        free(managed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    managed->device = device;
    managed->pages = pages;
    sim_faults_catch();
    pthread_mutex_lock(&lock);
    managed->next = all;
    all = managed;
    pthread_mutex_unlock(&lock);
    *out = managed;
    return CUDA_SUCCESS;
}

CUdeviceptr sim_managed_start(const struct sim_managed *managed)
{
    return managed->place->start;
}

void sim_managed_free(struct sim_managed *managed)
{
    const struct sim_device *device = &sim.device[managed->device];
    struct sim_managed **link = &all;
    size_t on_card = 0;

    pthread_mutex_lock(&lock);
    while (*link != managed)
        link = &(*link)->next;
    *link = managed->next;
    for (size_t page = 0; page < managed->pages; page++)
        on_card += managed->where[page] == CARD;
    pthread_mutex_unlock(&lock);
    sim_card_refund(device->card, device->client, on_card * SIM_PAGE);
    if (mmap(page_at(managed, 0), managed->place->size, PROT_NONE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        madvise(page_at(managed, 0), managed->place->size, MADV_DONTFORK);
    sim_place_drop(managed->place);
    free(managed);
}

/* under the lock */
static struct sim_managed *find(CUdeviceptr address)
{
    struct sim_managed *managed = all;

    while (managed && (address < managed->place->start ||
                       address >= managed->place->start + managed->place->size))
        managed = managed->next;
    return managed;
}

bool sim_managed_touch(CUdeviceptr address, bool by_card)
{
    bool no_room = false;

    pthread_mutex_lock(&lock);
    struct sim_managed *managed = find(address);
    const size_t page = managed ? (address - managed->place->start) / SIM_PAGE : 0;
    if (managed && managed->where[page] != CARD) { /* else another thread was quicker */
        no_room = by_card && !page_move(managed, page, CARD);
        if (no_room || !by_card)
            page_move(managed, page, HOST_OPEN);
        sim_count(&sim_stats.managed_faults, by_card);
        sim_count(&sim_stats.managed_remote, no_room);
    }
    pthread_mutex_unlock(&lock);
    if (no_room)
        sim_log("managed memory at %#llx: no room on the card for what it touches",
                (unsigned long long)address);
    return managed != NULL;
}

/* -- prefetch -- */

struct prefetch_op {
    struct sim_op op;
    CUdeviceptr address;
    size_t size;
    bool to_card;
};

/* Pages that have no room stay where they are: a prefetch is a wish. */
static CUresult prefetch_run(const struct sim_op *op, struct sim_context *context)
{
    const struct prefetch_op *self = (const struct prefetch_op *)op;
    struct sim_card *card = sim_context_device(context)->card;
    const CUdeviceptr end = self->address + self->size;
    size_t refused = 0;
    uint64_t until = 0;

    for (CUdeviceptr at = self->address; at < end; at = at / SIM_PAGE * SIM_PAGE + SIM_PAGE) {
        pthread_mutex_lock(&lock);
        struct sim_managed *managed = find(at);
        const size_t page = managed ? (at - managed->place->start) / SIM_PAGE : 0;
        const enum where where = managed ? managed->where[page] : CARD;
        if (managed && (where == CARD) != self->to_card) {
            const bool moved = page_move(managed, page, self->to_card ? CARD : HOST);
            refused += !moved;
            if (moved && where != NOWHERE)
                until = sim_card_book_bus(card, self->to_card ? SIM_TO_DEVICE : SIM_TO_HOST,
                                          SIM_PAGE);
        }
        pthread_mutex_unlock(&lock);
    }
    if (until)
        sim_sleep_until(until);
    if (refused)
        sim_log("prefetch of managed memory: no room on the card for %zu pages", refused);
    return CUDA_SUCCESS;
}

struct sim_op *sim_managed_prefetch_op(CUdeviceptr address, size_t size, bool to_card)
{
    struct prefetch_op *self = (struct prefetch_op *)sim_op_new(
        sizeof *self, "prefetch", CU_GRAPH_NODE_TYPE_EMPTY, prefetch_run);

    if (!self)
        return NULL;
    self->address = address;
    self->size = size;
    self->to_card = to_card;
    return &self->op;
}

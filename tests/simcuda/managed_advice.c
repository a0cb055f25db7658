/* SPDX-License-Identifier: Apache-2.0
 *
 * managed_advice.c: what programs tell the driver of their managed memory: prefetches and advice, which
 * is kept with each page (managed.c). Threads: any; prefetches run on workers.
 */
#include "tests/simcuda/managed.h"

struct prefetch_op {
    struct sim_op op;
    CUdeviceptr address;
    size_t size;
    int location; /* an ordinal, or -1 for the host */
};

/* One page on its way; a page that is read-mostly gets a second copy on the host, and stays.
 * False: there is no room for it. */
static bool prefetch_page(CUdeviceptr address, int location, uint64_t *until)
{
    const bool to_card = location >= 0;
    bool moved = true;

    pthread_mutex_lock(&sim_managed_lock);
    struct sim_managed *managed = sim_managed_find(address);
    struct page *page =
        managed ? &managed->page[(address - managed->place->start) / SIM_PAGE] : NULL;
    if (page && (page->where == CARD) != to_card && (to_card || !page->read_mostly)) {
        const bool has_bytes = page->where != NOWHERE;
        moved = sim_managed_page_move(managed, (size_t)(page - managed->page),
                                      to_card ? CARD : HOST);
        if (moved && has_bytes)
            *until = sim_card_book_bus(sim.device[managed->device].card,
                                       to_card ? SIM_TO_DEVICE : SIM_TO_HOST, SIM_PAGE);
    }
    pthread_mutex_unlock(&sim_managed_lock);
    return moved;
}

/* Pages that have no room stay where they are: a prefetch is a wish. */
static CUresult prefetch_run(const struct sim_op *op, struct sim_context *context)
{
    const struct prefetch_op *self = (const struct prefetch_op *)op;
    const struct sim_card *card = sim_context_device(context)->card;
    const CUdeviceptr end = self->address + self->size;
    size_t refused = 0;
    uint64_t until = 0;

    for (CUdeviceptr at = self->address; at < end; at = at / SIM_PAGE * SIM_PAGE + SIM_PAGE) {
        bool moved = prefetch_page(at, self->location, &until);
        for (unsigned i = 0; !moved && card->properties.fault_rate && i < ATTEMPTS &&
                             sim_managed_push_out((unsigned)self->location);
             i++)
            moved = prefetch_page(at, self->location, &until);
        refused += !moved;
    }
    if (until)
        sim_sleep_until(until);
    if (refused)
        sim_log("prefetch of managed memory: no room on the card for %zu pages", refused);
    return CUDA_SUCCESS;
}

/* Under the lock: the page of an address, which is managed. */
static struct page *page_of(CUdeviceptr address)
{
    struct sim_managed *managed = sim_managed_find(address);

    return managed ? &managed->page[(address - managed->place->start) / SIM_PAGE] : NULL;
}

struct sim_op *sim_managed_prefetch_op(CUdeviceptr address, size_t size, int location)
{
    struct prefetch_op *self = (struct prefetch_op *)sim_op_new(
        sizeof *self, "prefetch", CU_GRAPH_NODE_TYPE_EMPTY, prefetch_run);
    struct page *page;

    if (!self)
        return NULL;
    self->address = address;
    self->size = size;
    self->location = location;
    pthread_mutex_lock(&sim_managed_lock);
    for (CUdeviceptr at = address; at < address + size;
         at = at / SIM_PAGE * SIM_PAGE + SIM_PAGE)
        if ((page = page_of(at)) != NULL)
            page->prefetched = (int8_t)location;
    pthread_mutex_unlock(&sim_managed_lock);
    return &self->op;
}

static void advise_page(struct page *page, CUmem_advise advice, int location)
{
    const uint32_t bit = location >= 0 ? 1u << location : 1u << 31;

    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->read_mostly = advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = (int8_t)location;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = NO_LOCATION;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        page->accessed |= bit;
        break;
    default:
        page->accessed &= ~bit;
        break;
    }
}

void sim_managed_advise(CUdeviceptr address, size_t size, CUmem_advise advice, int location)
{
    struct page *page;

    pthread_mutex_lock(&sim_managed_lock);
    for (CUdeviceptr at = address; at < address + size;
         at = at / SIM_PAGE * SIM_PAGE + SIM_PAGE)
        if ((page = page_of(at)) != NULL)
            advise_page(page, advice, location);
    pthread_mutex_unlock(&sim_managed_lock);
}

static int fact_of(const struct page *page, enum sim_managed_fact fact)
{
    return fact == SIM_READ_MOSTLY ? page->read_mostly
           : fact == SIM_PREFERRED ? page->preferred
                                   : page->prefetched;
}

int sim_managed_fact(CUdeviceptr address, size_t size, enum sim_managed_fact fact)
{
    const int none = fact == SIM_READ_MOSTLY ? 0 : NO_LOCATION;
    const struct page *page;
    int answer;

    pthread_mutex_lock(&sim_managed_lock);
    page = page_of(address);
    answer = page ? fact_of(page, fact) : none;
    for (CUdeviceptr at = address; at < address + size;
         at = at / SIM_PAGE * SIM_PAGE + SIM_PAGE)
        if ((page = page_of(at)) == NULL || fact_of(page, fact) != answer)
            answer = none; /* not the same for all of it */
    pthread_mutex_unlock(&sim_managed_lock);
    return answer;
}

uint32_t sim_managed_accessed(CUdeviceptr address, size_t size)
{
    uint32_t devices = UINT32_MAX;
    const struct page *page;

    pthread_mutex_lock(&sim_managed_lock);
    for (CUdeviceptr at = address; at < address + size;
         at = at / SIM_PAGE * SIM_PAGE + SIM_PAGE) {
        page = page_of(at);
        devices &= page ? page->accessed : 0;
    }
    pthread_mutex_unlock(&sim_managed_lock);
    return devices;
}

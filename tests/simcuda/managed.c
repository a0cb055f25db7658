/* SPDX-License-Identifier: Apache-2.0
 *
 * managed.c: owns managed memory: where each of its pages is (nowhere yet, on a card, on the
 * host), their way from one to the other by prefetch, by a fault or pushed out, what they take of
 * the card.
 *
 * A page of 2 MiB counts on the card only while it is there. Pages elsewhere are protected, so
 * that the card's touch, made by a stream's worker, faults and brings them there; the program's
 * own touch opens them in place, until the next kernel begins. What is not seen: the program's
 * touch of a page on the card (it stays there), and the card's touch of a page that the program
 * has opened since then.
 *
 * With a fault rate (SIMCUDA_FAULT_GBPS) a fault takes its time, and a full card pushes out pages
 * of whichever process has most of them there, oldest first: each process with managed memory
 * has a thread that does so when others ask. Without one a page for which there is no room is
 * used where it is; such touches are counted (and logged), for tests of what must never need
 * that.
 *
 * State: the list of ranges and their pages, under sim_managed_lock, which comes after sim.lock and
 * before the locks of a card; the fault handler takes it. Nobody waits for room with it held.
 * Threads: any.
 */
#include <linux/futex.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "tests/simcuda/managed.h"

pthread_mutex_t sim_managed_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sim_managed *all;
static uint64_t arrivals;
static size_t open_pages; /* HOST_OPEN */

static void *page_at(const struct sim_managed *managed, size_t page)
{
    return (void *)(managed->place->start + page * SIM_PAGE);
}

static uint32_t *managed_pages(const struct sim_device *device)
{
    return &device->card->client[device->client].managed;
}

/* Under the lock. False: the card has no room, and nothing has changed. */
bool sim_managed_page_move(struct sim_managed *managed, size_t page, enum where to)
{
    const struct sim_device *device = &sim.device[managed->device];
    const enum where from = managed->page[page].where;
    const bool has_bytes = from != NOWHERE;

    if (to == CARD && from != CARD &&
        sim_card_charge(device->card, device->client, SIM_PAGE) != 0)
        return false;
    if (from == CARD && to != CARD)
        sim_card_refund(device->card, device->client, SIM_PAGE);
    if ((from == CARD) != (to == CARD))
        __atomic_fetch_add(managed_pages(device), to == CARD ? 1u : -1u, __ATOMIC_RELAXED);
    mprotect(page_at(managed, page), SIM_PAGE,
             to == CARD || to == HOST_OPEN ? PROT_READ | PROT_WRITE : PROT_NONE);
    open_pages += to == HOST_OPEN;
    open_pages -= from == HOST_OPEN;
    managed->page[page].where = (uint8_t)to;
    managed->page[page].arrived = ++arrivals;
    if (to == CARD && from != CARD && has_bytes)
        sim_count(&sim_stats.to_device_bytes, SIM_PAGE);
    else if (from == CARD && to != CARD)
        sim_count(&sim_stats.to_host_bytes, SIM_PAGE);
    return true;
}

/* -- pushing out -- */

/* Under the lock: the oldest page that is on the card. */
static struct sim_managed *find_oldest(unsigned device, size_t *page)
{
    struct sim_managed *found = NULL;

    for (struct sim_managed *managed = all; managed; managed = managed->next)
        for (size_t i = 0; i < managed->pages && managed->device == device; i++)
            if (managed->page[i].where == CARD &&
                (!found || managed->page[i].arrived < found->page[*page].arrived)) {
                found = managed;
                *page = i;
            }
    return found;
}

static bool push_out_own(unsigned device)
{
    uint64_t until = 0;
    size_t page = 0;

    pthread_mutex_lock(&sim_managed_lock);
    struct sim_managed *managed = find_oldest(device, &page);
    if (managed) {
        until = sim_card_book_bus(sim.device[device].card, SIM_TO_HOST, SIM_PAGE);
        sim_managed_page_move(managed, page, HOST);
        sim_count(&sim_stats.managed_evicted, 1);
    }
    pthread_mutex_unlock(&sim_managed_lock);
    if (until)
        sim_sleep_until(until);
    return managed != NULL;
}

/* Pushes out what other processes ask this one to. */
static void *push_out_for_others(void *argument)
{
    const unsigned device = (unsigned)(uintptr_t)argument;
    uint32_t *asked = &sim.device[device].card->client[sim.device[device].client].evict;

    for (;;) {
        const uint32_t pages = __atomic_exchange_n(asked, 0, __ATOMIC_ACQ_REL);
        for (uint32_t i = 0; i < pages && push_out_own(device); i++)
            ;
        if (!pages)
            syscall(SYS_futex, asked, FUTEX_WAIT, 0, NULL, NULL, 0);
    }
    return NULL;
}

static void start_pushing(unsigned device)
{
    static bool started[SIM_CARDS_MAX]; /* under sim.lock, as allocation is */
    pthread_attr_t attributes;
    pthread_t thread;

    if (started[device] || !sim.device[device].card->properties.fault_rate)
        return;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    started[device] = pthread_create(&thread, &attributes, push_out_for_others,
                                     (void *)(uintptr_t)device) == 0;
    pthread_attr_destroy(&attributes);
}

/* The process with most managed pages there pushes out one. False: nobody has any. */
bool sim_managed_push_out(unsigned device)
{
    struct sim_card *card = sim.device[device].card;
    unsigned most = sim.device[device].client;

    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++)
        if (__atomic_load_n(&card->client[i].managed, __ATOMIC_RELAXED) >
            __atomic_load_n(&card->client[most].managed, __ATOMIC_RELAXED))
            most = i;
    if (!__atomic_load_n(&card->client[most].managed, __ATOMIC_RELAXED))
        return false;
    if (most == sim.device[device].client)
        return push_out_own(device);
    __atomic_fetch_add(&card->client[most].evict, 1, __ATOMIC_ACQ_REL);
    syscall(SYS_futex, &card->client[most].evict, FUTEX_WAKE, 1, NULL, NULL, 0);
    sim_sleep_until(sim_now_ns() + 200000);
    return true;
}

void sim_managed_make_room(unsigned device, size_t bytes)
{
    if (!sim.device[device].card->properties.fault_rate)
        return;
    for (size_t i = 0; i < ATTEMPTS + 2 * bytes / SIM_PAGE; i++)
        if (sim_card_free(sim.device[device].card) >= bytes || !sim_managed_push_out(device))
            return;
}

/* -- making and ending -- */

CUresult sim_managed_new(unsigned device, size_t size, struct sim_managed **out)
{
    const size_t pages = size / SIM_PAGE + (size % SIM_PAGE != 0);
    struct sim_managed *managed = calloc(1, sizeof *managed + pages * sizeof managed->page[0]);

    if (!managed)
        return CUDA_ERROR_OUT_OF_MEMORY;
    managed->place = sim_place_take(pages * SIM_PAGE, SIM_PAGE, 0);
    if (!managed->place) {
        free(managed);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    managed->device = device;
    managed->pages = pages;
    for (size_t page = 0; page < pages; page++)
        managed->page[page].preferred = managed->page[page].prefetched = NO_LOCATION;
    sim_faults_catch();
    start_pushing(device);
    pthread_mutex_lock(&sim_managed_lock);
    managed->next = all;
    all = managed;
    pthread_mutex_unlock(&sim_managed_lock);
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

    pthread_mutex_lock(&sim_managed_lock);
    while (*link != managed)
        link = &(*link)->next;
    *link = managed->next;
    for (size_t page = 0; page < managed->pages; page++)
        on_card += managed->page[page].where == CARD;
    for (size_t page = 0; page < managed->pages; page++)
        open_pages -= managed->page[page].where == HOST_OPEN;
    pthread_mutex_unlock(&sim_managed_lock);
    sim_card_refund(device->card, device->client, on_card * SIM_PAGE);
    __atomic_fetch_sub(managed_pages(device), (uint32_t)on_card, __ATOMIC_RELAXED);
    if (mmap(page_at(managed, 0), managed->place->size, PROT_NONE,
             MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
        madvise(page_at(managed, 0), managed->place->size, MADV_DONTFORK);
    sim_place_drop(managed->place);
    free(managed);
}

/* under the lock */
struct sim_managed *sim_managed_find(CUdeviceptr address)
{
    struct sim_managed *managed = all;

    while (managed && (address < managed->place->start ||
                       address >= managed->place->start + managed->place->size))
        managed = managed->next;
    return managed;
}

/* Under the lock: a touch by the card brings the page there. False: there is no room for it. */
static bool fault_in(struct sim_managed *managed, size_t page, uint64_t *until)
{
    struct sim_card *card = sim.device[managed->device].card;
    const bool has_bytes = managed->page[page].where != NOWHERE;

    if (managed->page[page].where == CARD) /* another thread was quicker */
        return true;
    if (!sim_managed_page_move(managed, page, CARD))
        return false;
    if (has_bytes && card->properties.fault_rate) {
        const uint64_t bus = sim_card_book_bus(card, SIM_TO_DEVICE, SIM_PAGE),
                       fault = sim_now_ns() + (uint64_t)((double)SIM_PAGE * 1e9 /
                                                         (double)card->properties.fault_rate);
        *until = bus > fault ? bus : fault;
    }
    sim_count(&sim_stats.managed_faults, 1);
    return true;
}

/* True if it is managed memory; *full: the card has no room for its page. */
static bool touch_once(CUdeviceptr address, bool by_card, bool last, unsigned *device,
                       bool *full)
{
    uint64_t until = 0;

    pthread_mutex_lock(&sim_managed_lock);
    struct sim_managed *managed = sim_managed_find(address);
    const size_t page = managed ? (address - managed->place->start) / SIM_PAGE : 0;
    *full = managed && by_card && !fault_in(managed, page, &until);
    if (managed && managed->page[page].where != CARD && (!by_card || last))
        sim_managed_page_move(managed, page, HOST_OPEN);
    if (*full && last)
        sim_count(&sim_stats.managed_remote, 1);
    if (managed)
        *device = managed->device;
    pthread_mutex_unlock(&sim_managed_lock);
    if (until)
        sim_sleep_until(until);
    return managed != NULL;
}

bool sim_managed_touch(CUdeviceptr address, bool by_card)
{
    unsigned device = 0;
    bool full = false;

    for (unsigned attempt = 0; attempt < ATTEMPTS; attempt++) {
        if (!touch_once(address, by_card, false, &device, &full))
            return false;
        if (!full)
            return true;
        if (!sim.device[device].card->properties.fault_rate || !sim_managed_push_out(device))
            break;
    }
    touch_once(address, by_card, true, &device, &full);
    if (full)
        sim_log("managed memory at %#llx: no room on the card for what it touches",
                (unsigned long long)address);
    return true;
}

void sim_managed_close(void)
{
    pthread_mutex_lock(&sim_managed_lock);
    for (struct sim_managed *managed = all; managed && open_pages; managed = managed->next)
        for (size_t page = 0; page < managed->pages && open_pages; page++)
            if (managed->page[page].where == HOST_OPEN)
                sim_managed_page_move(managed, page, HOST);
    pthread_mutex_unlock(&sim_managed_lock);
}

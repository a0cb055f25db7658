/* SPDX-License-Identifier: Apache-2.0
 *
 * common.c: one host copy for what several programs of a user hold.
 *
 * A program that has found its bytes in memory of another (match.c) writes host copies of what it
 * found, or of what has left more than once without a change, to sealed files (range/sealed.h), and
 * offers them to the programs of its user. Each program compares the file with its own host copies,
 * byte by byte, and where they are the same maps the file in place of the copy. So nobody is
 * believed, nobody can change what others have, and a program that ends leaves the memory to the
 * others. The sender does so only when another program has. All hear the offers in one order, and
 * the newest counts: so offers that cross end in one memory.
 *
 * Common memory cannot be registered, since the driver registers no memory that it may not write.
 * What must be copied from it goes through a small stage of registered memory, by several threads.
 *
 * State: the offers that came, the offer to be sent, the stage; client thread only. A chunk is
 * `moving` while its copy is read here.
 */
#include "runtime/swap/common.h"

#include <string.h>

#include "lockd/protocol/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/daemon.h"
#include "runtime/base/device.h"
#include "runtime/base/driver.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/own_fd.h"
#include "runtime/base/worker.h"
#include "runtime/range/chunk.h"
#include "runtime/range/host.h"
#include "runtime/range/host_memory.h"
#include "runtime/range/memory_lock.h"
#include "runtime/range/sealed.h"
#include "runtime/swap/swap_copy.h"

#define OFFERS_MOST 64u
#define SAMPLE      64u /* bytes: tell nearly all contents apart */
/* Of a program's own offers so many at most wait for another program to take them, and so long. */
#define OWN_MOST 8u
#define OWN_NS   2000000000ull
#define AGAIN_NS 10000000000ull /* an offer may have been lost, or a program come since */
#define DOUBLED  10u            /* each pause is twice as long as the last, so many times */
#define LOOK_NS  100000000ull
#define PACE_NS  5000000ull /* the daemon reads 2000 messages of a user in a second */

struct offer {
    char *memory;
    uint64_t bytes, number;
    uint64_t filled; /* one bit a block: those that have memory */
    bool own;
    uint64_t at; /* ns: when it came */
};

struct offers { /* the oldest first */
    struct offer offer[OFFERS_MOST];
    unsigned count;
};

static struct {
    struct offers came;
    struct offers own;           /* that nobody has taken yet */
    uint64_t taken[OFFERS_MOST]; /* numbers of offers that were taken; to be said */
    unsigned taken_count;
    struct gs_own_fd made; /* to be sent */
    uint64_t made_bytes;
    struct gs_host_block *stage;
    bool found, shrinks; /* there may be something to offer; segments may be of no use now */
    uint64_t next_at;    /* ns: the next attempt to offer something */
} self = {.made = GS_NO_FD};

/* --- one chunk's copy --- */

struct copy {
    struct gs_range *range;
    struct gs_chunk *chunk;
};

/* Under the lock: a host copy that can be compared. */
static bool is_whole_copy(const struct gs_range *range, const struct gs_chunk *chunk)
{
    return range->life == GS_RANGE_LIVE && !range->pinned && !chunk->moving &&
           (chunk->state == GS_CHUNK_HOST || chunk->state == GS_CHUNK_RESIDENT) &&
           chunk->host != NULL && chunk->host->known && chunk->host->memory != NULL;
}

static bool is_stored(const struct gs_host_block *host, uint64_t block)
{
    return (host->hashes[block][0] | host->hashes[block][1]) != 0;
}

static uint64_t bytes_of(const struct gs_host_block *host, uint64_t block)
{
    const uint64_t from = block * GS_BLOCK_BYTES;

    return host->bytes - from < GS_BLOCK_BYTES ? host->bytes - from : GS_BLOCK_BYTES;
}

/* Finds the first such copy, and keeps it from moving. */
static struct copy take_copy(bool (*suits)(const struct gs_chunk *, const void *),
                             const void *with)
{
    struct copy copy = {NULL, NULL};
    struct gs_device *device;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && copy.range == NULL; i++)
        for (struct gs_range *range = device->ranges; range != NULL && copy.range == NULL;
             range = range->next)
            for (uint32_t k = 0; k < range->chunk_count && copy.range == NULL; k++)
                if (is_whole_copy(range, &range->chunks[k]) && suits(&range->chunks[k], with))
                    copy = (struct copy){range, &range->chunks[k]};
    if (copy.range != NULL) {
        copy.chunk->moving = true;
        copy.range->moving++;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return copy;
}

/* Lets it move again, with this copy. */
static void let_go(const struct copy *copy, struct gs_host_block *host)
{
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    copy->chunk->host = host;
    copy->chunk->moving = false;
    copy->range->moving--;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
}

/* --- what comes --- */

_Static_assert(GS_COPY_MOST / GS_BLOCK_BYTES <= 64, "offer.filled");

/* A block that is a hole holds zeros, which no stored block does. To read it would make memory for
 * it, which a limit may refuse: the program would be killed. */
static bool is_filled(const struct offer *offer, uint64_t block)
{
    return (offer->filled >> block & 1) != 0;
}

static bool looks_like(const struct gs_chunk *chunk, const void *with)
{
    const struct gs_host_block *host = chunk->host;
    const struct offer *offer = with;
    const uint64_t count = (host->bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES;
    uint64_t block = 0;

    if (host->bytes != offer->bytes || (host->common && host->number >= offer->number))
        return false;
    while (block < count && !is_stored(host, block))
        block++;
    return block < count && is_filled(offer, block) &&
           memcmp(host->memory + block * GS_BLOCK_BYTES, offer->memory + block * GS_BLOCK_BYTES,
                  SAMPLE) == 0;
}

enum outcome { SAME, OTHER, LATER };

/* A thread that frees the range waits for that (gs_range_await_rest()), and so does a thread that
 * asks the client thread to park. */
static bool must_let_go(const struct gs_range *range)
{
    bool ended;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    ended = range->life != GS_RANGE_LIVE;
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return ended || gs_daemon_has_news() || gs_worker_is_asked_to_park();
}

static enum outcome compare_all(const struct copy *copy, const struct offer *offer)
{
    const struct gs_host_block *host = copy->chunk->host;

    for (uint64_t block = 0; block * GS_BLOCK_BYTES < host->bytes; block++) {
        if (must_let_go(copy->range))
            return LATER;
        if (is_stored(host, block) &&
            (!is_filled(offer, block) ||
             memcmp(host->memory + block * GS_BLOCK_BYTES,
                    offer->memory + block * GS_BLOCK_BYTES, bytes_of(host, block)) != 0))
            return OTHER;
    }
    return SAME;
}

static struct gs_host_block *adopt_offer(const struct gs_host_block *host,
                                         const struct offer *offer)
{
    char *memory = gs_sealed_map_again(offer->memory, offer->bytes);
    struct gs_host_block *block =
        memory != NULL ? gs_host_adopt(host, memory, offer->number, !offer->own) : NULL;

    if (memory != NULL && block == NULL)
        gs_host_unmap(memory, offer->bytes);
    return block;
}

/* Makes one more copy common. False: no other copy is the same. */
static bool take_offer(const struct offer *offer, bool *later)
{
    const struct copy copy = take_copy(looks_like, offer);
    struct gs_host_block *host, *block = NULL;
    enum outcome outcome;

    if (copy.range == NULL)
        return false;
    host = copy.chunk->host;
    outcome = compare_all(&copy, offer);
    if (outcome == SAME)
        block = adopt_offer(host, offer);
    let_go(&copy, block != NULL ? block : host);
    if (block != NULL) {
        gs_log("a host copy of %llu bytes is common now: %s offer %llu",
               (unsigned long long)block->bytes, offer->own ? "own" : "another program's",
               (unsigned long long)offer->number);
        gs_host_put(host);
        self.shrinks = true;
    }
    *later = outcome == LATER;
    return block != NULL;
}

static void drop_offer(struct offers *offers, unsigned i, bool unmaps)
{
    if (unmaps)
        gs_host_unmap(offers->offer[i].memory, offers->offer[i].bytes);
    offers->count--;
    memmove(&offers->offer[i], &offers->offer[i + 1],
            (offers->count - i) * sizeof offers->offer[0]);
}

static void say_taken(const struct offer *offer)
{
    const unsigned last = self.taken_count - 1;

    if (offer->own || (self.taken_count != 0 && self.taken[last] == offer->number) ||
        self.taken_count == OFFERS_MOST)
        return;
    self.taken[self.taken_count++] = offer->number;
}

static void hear_taken(uint64_t number)
{
    for (unsigned i = 0; i < self.own.count; i++)
        if (self.own.offer[i].number == number && self.came.count < OFFERS_MOST) {
            self.came.offer[self.came.count++] = self.own.offer[i];
            drop_offer(&self.own, i, false);
            return;
        }
}

void gs_common_heard(const struct gs_wire_copy *copy, const struct gs_descriptors *with)
{
    struct offers *offers = copy->own != 0 ? &self.own : &self.came;
    struct offer *offer = &offers->offer[offers->count];

    if (with->count == 0)
        hear_taken(copy->number);
    if (with->count != 1 || offers->count == OFFERS_MOST || copy->bytes == 0 ||
        copy->bytes > GS_COPY_MOST || gs_host_limits() < copy->bytes + GS_HOST_FLOOR)
        return; /* mappings count against the program's own limit of addresses */
    *offer = (struct offer){
        .bytes = copy->bytes, .number = copy->number, .own = copy->own != 0, .at = gs_now()};
    offer->memory = gs_sealed_map(with->fd[0], copy->bytes, GS_BLOCK_BYTES, &offer->filled);
    if (offer->memory != NULL)
        offers->count++;
}

/* --- what goes --- */

static bool is_worth_offering(const struct gs_chunk *chunk, const void *with)
{
    const uint64_t now = *(const uint64_t *)with;
    const struct gs_host_block *host = chunk->host;

    return (host->found || host->stayed) && !host->common && host->bytes <= GS_COPY_MOST &&
           (host->offers == 0 ||
            now - host->offered_at > AGAIN_NS
                                         << (host->offers < DOUBLED ? host->offers : DOUBLED));
}

/* -1: it could not be written, or not yet. */
static int write_copy(const struct copy *copy)
{
    const struct gs_host_block *host = copy->chunk->host;
    const bool fits = gs_host_used() + host->bytes <= gs_host_budget() &&
                      gs_host_available() > host->bytes + GS_HOST_FLOOR;
    int fd = fits ? gs_sealed_new(host->bytes) : -1;
    struct gs_own_fd own = GS_NO_FD;
    bool written = fd >= 0;

    if (fd < 0)
        return -1;
    gs_own_fd_set(&own, fd);
    fd = gs_own_fd(&own);
    for (uint64_t block = 0; block * GS_BLOCK_BYTES < host->bytes && written; block++)
        written = !must_let_go(copy->range) &&
                  (!is_stored(host, block) ||
                   gs_sealed_write(fd, host->memory + block * GS_BLOCK_BYTES,
                                   bytes_of(host, block), block * GS_BLOCK_BYTES));
    if (written && gs_sealed_close(fd))
        return fd;
    gs_own_fd_close(&own);
    return -1;
}

static bool may_give(void)
{
    struct gs_device *device;
    bool any = false;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        any |= (gs_device_flags(device) & GS_TARGET_GIVE) != 0;
    return any;
}

/* Writes the copy, and notes that it is offered. False: it could not be written, or not yet. */
static bool offer_copy(const struct copy *copy, uint64_t now)
{
    struct gs_host_block *host = copy->chunk->host;
    const int fd = write_copy(copy);

    if (fd < 0)
        return false;
    host->offered_at = now;
    if (host->offers < DOUBLED)
        host->offers++;
    self.made_bytes = host->bytes;
    gs_own_fd_set(&self.made, fd);
    return true;
}

/* Returns ns until the next attempt. */
static uint64_t make_offer(uint64_t now)
{
    struct copy copy = {NULL, NULL};
    bool offered = false;

    if (!self.found || !may_give())
        return UINT64_MAX;
    if (now < self.next_at)
        return self.next_at - now;
    if (self.own.count < OWN_MOST && gs_own_fd(&self.made) < 0)
        copy = take_copy(is_worth_offering, &now);
    if (copy.range != NULL) {
        offered = offer_copy(&copy, now);
        let_go(&copy, copy.chunk->host);
    }
    if (offered)
        gs_log("a host copy of %llu bytes is offered", (unsigned long long)self.made_bytes);
    self.next_at = now + (offered ? PACE_NS : LOOK_NS);
    return self.next_at - now;
}

bool gs_common_say(struct gs_wire_copy *copy, int *fd)
{
    *fd = gs_own_fd(&self.made);
    copy->bytes = *fd >= 0 ? self.made_bytes : 1;
    copy->number = *fd < 0 && self.taken_count != 0 ? self.taken[0] : 0;
    return *fd >= 0 || self.taken_count != 0;
}

void gs_common_said(const struct gs_wire_copy *copy)
{
    if (copy->number == 0)
        gs_own_fd_close(&self.made);
    else
        memmove(&self.taken[0], &self.taken[1], --self.taken_count * sizeof self.taken[0]);
}

/* --- the stage --- */

char *gs_common_stage(void)
{
    if (self.stage == NULL)
        self.stage = gs_host_get(GS_COMMON_STAGE);
    if (self.stage != NULL && self.stage->memory == NULL) /* it is in the file */
        gs_common_drop_stage();
    return self.stage != NULL ? self.stage->memory : NULL;
}

void gs_common_drop_stage(void)
{
    gs_host_put(self.stage);
    self.stage = NULL;
}

/* --- steps --- */

void gs_common_came(const struct gs_job *job)
{
    struct gs_host_block *host = job->chunk->host;

    if (host == NULL || job->hashes == NULL)
        return;
    host->missed = job->copied != 0;
    if (job->copied == 0 && job->saved.equal != 0)
        host->found = self.found = true;
}

/* Segments whose blocks have become common are released. */
static bool shrink_arena(void)
{
    const struct gs_context *context = NULL;
    struct gs_device *device;
    CUcontext popped;

    for (unsigned i = 0; (device = gs_device_at(i)) != NULL && context == NULL; i++)
        context = gs_context_for(device);
    self.shrinks =
        self.shrinks && context != NULL && gs_context_push(context->handle) == CUDA_SUCCESS;
    if (!self.shrinks)
        return false;
    self.shrinks = gs_host_shrink();
    gs_driver.cuCtxPopCurrent_v2(&popped);
    return self.shrinks;
}

uint64_t gs_common_step(uint64_t now)
{
    bool later = false;

    if (gs_daemon_has_news())
        return UINT64_MAX; /* the next round comes at once */
    if (self.own.count != 0 && now - self.own.offer[0].at > OWN_NS)
        drop_offer(&self.own, 0, true);
    if (self.came.count != 0) {
        if (take_offer(&self.came.offer[0], &later))
            say_taken(&self.came.offer[0]);
        else if (!later)
            drop_offer(&self.came, 0, true);
        return later ? 1000000 : 0; /* ns: whoever asked for the pause has not begun it */
    }
    return shrink_arena() ? 0 : make_offer(now);
}

void gs_common_lost(void)
{
    gs_own_fd_close(&self.made);
    self.taken_count = 0;
}

void gs_common_after_fork(void)
{
    gs_common_lost();
    self.came.count = self.own.count = 0; /* not mapped in this process */
    self.stage = NULL;
    self.found = self.shrinks = false;
}

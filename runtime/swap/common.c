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
 * Common memory is registered for reading (range/host.c). Where the driver cannot do that, or not
 * yet, what must be copied from it goes through a small stage of registered memory, by several threads.
 *
 * State: the offers that came, the offer to be sent, the stage; client thread only. Copies are read
 * while the program runs on and may free them: this thread is a holder of what it reads, so
 * that nobody waits for it.
 */
#include "runtime/swap/common.h"
#include "lockd/protocol/wire.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/range/host_memory.h"
#include "runtime/range/sealed.h"
#include "runtime/swap/kernels.h"
#include "runtime/swap/swap_copy.h"

#define OFFERS_MOST 64u
#define HELD_MOST   3u /* what others hold is missed when other memory came in its place */
/* Of a program's own offers so many at most wait for another program to take them, and so long. */
#define OWN_MOST 8u
#define OWN_NS   4000000000ull
/* And an offer that came, for an idle moment of this thread: less, since an offer that is taken when
 * its sender has let it go is shared by nobody. */
#define CAME_NS 2000000000ull
#define HEARD_NS                                                                               \
    1000000000ull /* the daemon leaves offers out: they are made more slowly then */
#define AGAIN_NS 10000000000ull /* an offer may have been lost, or a program come since */
#define DOUBLED  10u            /* each pause is twice as long as the last, so many times */
#define LOOK_NS  100000000ull
#define PACE_NS  5000000ull /* the daemon reads 2000 messages of a user in a second */

struct offer {
    struct gs_host_common *memory;
    uint64_t filled;  /* one bit a block: those that have memory */
    uint64_t hash[2]; /* of the first of them; 0, 0: not looked at yet */
    uint64_t at;      /* ns: when it came */
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
    struct gs_own_fd made; /* being written, or to be sent */
    uint64_t made_bytes;   /* to be sent; else 0 */
    uint64_t unheard;      /* ns: when an offer was sent that has not come back; 0: none */
    struct gs_host_block *stage;
    bool found, shrinks; /* there may be something to offer; segments may be of no use now */
    uint64_t next_at;    /* ns: the next attempt to offer something */
} self GS_ZERO_IN_CHILD;

/* --- copies --- */

/* Under the lock: a host copy that can be compared. */
static bool is_whole_copy(const struct gs_range *range, const struct gs_chunk *chunk)
{
    return range->life == GS_RANGE_LIVE && !range->pinned && !chunk->moving &&
           (chunk->state == GS_CHUNK_HOST || chunk->state == GS_CHUNK_RESIDENT) &&
           chunk->host != NULL && chunk->host->known && chunk->host->memory != NULL;
}

/* The first such copy, to be put by the caller; by: its chunk gets that copy instead. NULL: there is
 * none. */
static struct gs_host_block *take_copy(bool (*suits)(const struct gs_host_block *,
                                                     const void *),
                                       const void *with, struct gs_host_block *by)
{
    struct gs_device *device;

    GS_HOLD_MEMORY;
    for (unsigned i = 0; (device = gs_device_at(i)) != NULL; i++)
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
            for (uint32_t k = 0; k < range->chunk_count; k++) {
                struct gs_host_block *host = range->chunks[k].host;

                if (!is_whole_copy(range, &range->chunks[k]) || !suits(host, with))
                    continue;
                if (by == NULL)
                    gs_host_keep(host);
                else
                    range->chunks[k].host = by;
                return host;
            }
    return NULL;
}

static bool is_that(const struct gs_host_block *host, const void *with)
{
    return host == with;
}

static bool is_stored(const struct gs_host_block *host, uint64_t block)
{
    return (host->hashes[block][0] | host->hashes[block][1]) != 0;
}

static uint64_t bytes_of(uint64_t bytes, uint64_t block)
{
    const uint64_t from = block * GS_BLOCK_BYTES;

    return bytes - from < GS_BLOCK_BYTES ? bytes - from : GS_BLOCK_BYTES;
}

/* --- what comes --- */

_Static_assert(GS_COPY_MOST / GS_BLOCK_BYTES <= 64, "offer.filled");

/* A block that is a hole holds zeros, which no stored block does. To read it would make memory for
 * it, which a limit may refuse: the program would be killed. */
static bool is_filled(const struct offer *offer, uint64_t block)
{
    return (offer->filled >> block & 1) != 0;
}

/* Its first stored block has the hash of the first block of the offer: no memory is read. */
static bool looks_like(const struct gs_host_block *host, const void *with)
{
    const struct offer *offer = with;
    const uint64_t count = (host->bytes + GS_BLOCK_BYTES - 1) / GS_BLOCK_BYTES;
    uint64_t block = 0;

    if (host->bytes != offer->memory->bytes || host->unlike == offer->memory->number ||
        (host->common != NULL && host->common->number >= offer->memory->number))
        return false;
    while (block < count && !is_stored(host, block) && !is_filled(offer, block))
        block++;
    return block < count && host->hashes[block][0] == offer->hash[0] &&
           host->hashes[block][1] == offer->hash[1];
}

enum outcome { SAME, OTHER, LATER };

/* The daemon, or a thread that asks this thread to park, waits for it. */
static bool is_awaited(void)
{
    return gs_daemon_has_news() || gs_worker_is_asked_to_park();
}

static enum outcome compare_all(const struct gs_host_block *host, const struct offer *offer)
{
    const char *memory = offer->memory->memory;

    for (uint64_t block = 0; block * GS_BLOCK_BYTES < host->bytes; block++) {
        if (is_awaited())
            return LATER;
        if (is_stored(host, block) &&
            (!is_filled(offer, block) ||
             memcmp(host->memory + block * GS_BLOCK_BYTES, memory + block * GS_BLOCK_BYTES,
                    bytes_of(host->bytes, block)) != 0))
            return OTHER;
    }
    return SAME;
}

/* Makes one more copy common, or finds that it is another. False: there is none left, or not yet. */
static bool take_offer(struct offer *offer, bool *later)
{
    const unsigned first = (unsigned)__builtin_ffsll((long long)offer->filled) - 1;
    struct gs_host_block *host, *block = NULL;
    enum outcome outcome;

    if (offer->filled == 0) /* there is nothing in it */
        return false;
    if ((offer->hash[0] | offer->hash[1]) == 0)
        gs_hash_on_host(offer->memory->memory + first * GS_BLOCK_BYTES,
                        bytes_of(offer->memory->bytes, first), offer->hash);
    host = take_copy(looks_like, offer, NULL);
    if (host == NULL)
        return false;
    outcome = compare_all(host, offer);
    if (outcome == SAME)
        block = gs_host_adopt(host, offer->memory);
    /* its chunk gets the other copy instead, unless the program has freed it meanwhile */
    if (block != NULL && take_copy(is_that, host, block) == NULL) {
        gs_host_put(block);
    } else if (block != NULL) {
        gs_host_put(host); /* the chunk's */
        gs_log("a host copy of %llu bytes is common now: %s offer %llu",
               (unsigned long long)offer->memory->bytes,
               offer->memory->foreign ? "another program's" : "own",
               (unsigned long long)offer->memory->number);
        self.shrinks = true;
        if (offer->memory->foreign && self.taken_count != OFFERS_MOST &&
            (self.taken_count == 0 ||
             self.taken[self.taken_count - 1] != offer->memory->number))
            self.taken[self.taken_count++] = offer->memory->number;
    }
    if (outcome == OTHER)
        host->unlike = offer->memory->number;
    gs_host_put(host);
    *later = outcome == LATER;
    return block != NULL || outcome == OTHER;
}

static void drop_offer(struct offers *offers, unsigned i, bool unmaps)
{
    if (unmaps)
        gs_host_unshare(offers->offer[i].memory);
    offers->count--;
    memmove(&offers->offer[i], &offers->offer[i + 1],
            (offers->count - i) * sizeof offers->offer[0]);
}

static void hear_taken(uint64_t number)
{
    for (unsigned i = 0; i < self.own.count; i++)
        if (self.own.offer[i].memory->number == number && self.came.count < OFFERS_MOST) {
            self.came.offer[self.came.count] = self.own.offer[i];
            self.came.offer[self.came.count++].at = gs_now();
            drop_offer(&self.own, i, false);
            return;
        }
}

void gs_common_heard(const struct gs_wire_copy *copy, const struct gs_descriptors *with)
{
    struct offers *offers = copy->own != 0 ? &self.own : &self.came;
    struct offer *offer = &offers->offer[offers->count];
    char *memory;

    if (with->count == 0)
        hear_taken(copy->number);
    if (copy->own != 0)
        self.unheard = 0;
    if (with->count != 1 || offers->count == OFFERS_MOST || copy->bytes == 0 ||
        copy->bytes > GS_COPY_MOST || gs_host_limits() < copy->bytes + GS_HOST_FLOOR)
        return; /* mappings count against the program's own limit of addresses */
    *offer = (struct offer){.at = gs_now()};
    memory = gs_sealed_map(with->fd[0], copy->bytes, GS_BLOCK_BYTES, &offer->filled);
    if (memory != NULL)
        offer->memory = gs_host_share(
            memory, copy->bytes, copy->number, copy->own == 0,
            (unsigned)__builtin_popcountll(offer->filled) * GS_BLOCK_BYTES >= copy->bytes);
    offers->count += offer->memory != NULL;
}

/* --- what goes --- */

static bool is_worth_offering(const struct gs_host_block *host, const void *with)
{
    const uint64_t now = *(const uint64_t *)with;

    return (host->found || host->stayed) && host->common == NULL &&
           host->bytes <= GS_COPY_MOST &&
           (host->offers == 0 ||
            now - host->offered_at > AGAIN_NS
                                         << (host->offers < DOUBLED ? host->offers : DOUBLED));
}

/* Writes it to a new file, which no forked child keeps. False: it could not be written, or not yet. */
static bool write_copy(const struct gs_host_block *host)
{
    bool written = gs_host_used() + host->bytes <= gs_host_budget() &&
                   gs_host_available() > host->bytes + GS_HOST_FLOOR && gs_handover_begin();
    int fd;

    if (!written)
        return false;
    fd = gs_sealed_new(host->bytes);
    if (fd >= 0)
        gs_own_fd_set(&self.made, fd);
    gs_handover_end();
    fd = fd >= 0 ? gs_own_fd(&self.made) : -1;
    for (uint64_t block = 0; block * GS_BLOCK_BYTES < host->bytes && written; block++)
        written = fd >= 0 && !is_awaited() &&
                  (!is_stored(host, block) ||
                   gs_sealed_write(fd, host->memory + block * GS_BLOCK_BYTES,
                                   bytes_of(host->bytes, block), block * GS_BLOCK_BYTES));
    if (written && gs_sealed_close(fd))
        return true;
    gs_own_fd_close(&self.made);
    return false;
}

/* Returns ns until the next attempt. */
static uint64_t make_offer(uint64_t now)
{
    struct gs_host_block *host = NULL;

    if (!self.found || !GS_ANY_DEVICE((gs_device_flags(device) & GS_TARGET_GIVE) != 0))
        return UINT64_MAX;
    if (now < self.next_at)
        return self.next_at - now;
    if (self.unheard != 0 && now - self.unheard > HEARD_NS)
        self.unheard = 0;
    if (self.own.count < OWN_MOST && gs_own_fd(&self.made) < 0 && self.unheard == 0)
        host = take_copy(is_worth_offering, &now, NULL);
    self.next_at = now + LOOK_NS;
    if (host != NULL && write_copy(host)) {
        self.next_at = now + PACE_NS;
        host->offered_at = now;
        if (host->offers < DOUBLED)
            host->offers++;
        self.made_bytes = host->bytes;
        gs_log("a host copy of %llu bytes is offered", (unsigned long long)self.made_bytes);
    }
    gs_host_put(host);
    return self.next_at - now;
}

bool gs_common_say(struct gs_wire_copy *copy, int *fd)
{
    *fd = self.made_bytes != 0 ? gs_own_fd(&self.made) : -1;
    copy->bytes = *fd >= 0 ? self.made_bytes : 1;
    copy->number = *fd < 0 && self.taken_count != 0 ? self.taken[0] : 0;
    return *fd >= 0 || self.taken_count != 0;
}

static void drop_made(void)
{
    gs_own_fd_close(&self.made);
    self.made_bytes = 0;
}

void gs_common_said(const struct gs_wire_copy *copy)
{
    if (copy->number != 0) {
        memmove(&self.taken[0], &self.taken[1], --self.taken_count * sizeof self.taken[0]);
        return;
    }
    drop_made();
    self.unheard = gs_now();
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
    if (job->saved.equal >= job->copied)
        host->held = HELD_MOST;
    else if (host->held != 0)
        host->held--;
    if (job->copied == 0 && job->saved.equal != 0)
        host->found = self.found = true;
}

/* Segments whose blocks have become common are released. */
static bool shrink_arena(bool quiet)
{
    if (!quiet)
        return false; /* later: gs_moving_keep_host() */
    self.shrinks = self.shrinks && GS_ANY_DEVICE(gs_context_enter(device));
    if (!self.shrinks)
        return false;
    self.shrinks = gs_host_shrink();
    gs_context_pop();
    return self.shrinks;
}

static void drop_older(struct offers *offers, uint64_t ns, uint64_t now)
{
    while (offers->count != 0 && now - offers->offer[0].at > ns)
        drop_offer(offers, 0, true);
}

uint64_t gs_common_step(uint64_t now, bool idle, bool quiet)
{
    bool later = false;

    drop_older(&self.own, OWN_NS, now);
    drop_older(&self.came, CAME_NS, now);
    if (!idle || gs_daemon_has_news())
        return UINT64_MAX; /* the next round comes at once, or soon enough for what is to be dropped */
    if (self.came.count != 0) {
        if (!take_offer(&self.came.offer[0], &later) && !later)
            drop_offer(&self.came, 0, true);
        return later ? 1000000 : 0; /* ns: whoever asked for the pause has not begun it */
    }
    return shrink_arena(quiet) ? 0 : make_offer(now);
}

void gs_common_lost(void)
{
    drop_made();
    self.taken_count = 0;
    self.unheard = 0;
}

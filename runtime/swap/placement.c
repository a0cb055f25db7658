/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.c: exchanges chunks between the card and the host memory beyond it.
 *
 * Uses are counted in windows. A window is a whole number of *rounds* of the program, which goes over
 * its memory again and again: by its calls it has used WINDOW times as many bytes as it has, among them
 * most of what it used before, and it is back at the memory with which the window began. So memory that
 * is used in turns is used about as often in every window, however long a turn takes, and stays
 * where it is. If the program no longer comes round (it does something else now), the window ends
 * after WINDOW_MOST times its bytes. An exchange must win twice its cost
 * within HORIZON such windows. All exchanges of a window take no more than half of its time,
 * counted from when the device is drained: work that is queued already may take longer than the
 * window did.
 *
 * Exchanges are kept only where the program does not become slower by them. A kernel that reads its
 * memory several times (a product of matrices) reads what lies beyond the card as often over the bus;
 * nothing that a launch says tells such kernels from others. So the time that the program takes for a
 * byte that it uses is compared, window by window, with the best so far; where it is worse after
 * exchanges, those since the best are undone. The program's work on the CPU counts as well, so a trial
 * may be lost by chance, or because the program does something else now: the chunks go back, and after
 * some windows the same is tried again.
 *
 * How a chunk changes places: exchange.h. State: client thread only.
 */
#include "runtime/swap/placement.h"
#include "runtime/base/rdma.h"
#include "runtime/gate/gate.h"
#include "runtime/range/host.h"
#include "runtime/range/uses.h"
#include "runtime/swap/exchange.h"

#define MS          1000000ull
#define LOOK_NS     (50 * MS)
#define MEND_NS     (10 * MS) /* until the next attempt to map what is adrift */
#define WINDOW      4u
#define WINDOW_MOST 128u /* times as many bytes: the longest window */
#define UNUSED      8u   /* this part of what was used before need not be used in a window */
#define HORIZON     20u
#define MAPPING     1e6   /* ns: an exchange without its copies, until it is measured */
#define MAPPED      250e3 /* ns: the same at least, however small the chunk is */
#define COPYING     0.02  /* ns a byte, until it is measured: 50 GB/s */
#define PAIRS_MOST  4096u
#define WON         1.05 /* times as fast */
#define REST_MOST   4096u
#define WORSE_THAN  1.25 /* times the best pace: the counted uses speak for an exchange */

static struct {
    bool pending;
    uint64_t looked_at, window_from; /* ns */
    uint64_t noted, complete_at;     /* bytes of this window; those until it was complete */
    uint64_t most;                   /* ns that the exchanges of this window may take */
    uint64_t began;                  /* ns: the first of them; 0: none has begun */
    bool undoes;                     /* the exchange that was chosen last takes one back */
    uint64_t not_run_since;          /* ns; 0: it runs */
    uint64_t idle_ns;  /* of this window: it did not run, or submitted and awaited nothing */
    uint64_t activity; /* of the gate, at the last look */
} self;
static double cost_a_byte; /* ns, of what changes places; 0: not measured */

/* --- trials --- */

/* A chunk by its range's address: the range may be gone meanwhile. */
struct chunk_place {
    CUdeviceptr base;
    uint32_t index;
};

/* since the best pace, in the order in which they changed places; not in trial, which a fork clears */
static struct {
    struct chunk_place to_card, beyond;
} pairs[PAIRS_MOST];

static struct {
    unsigned pairs;
    double pace;  /* ns a byte, of the last window; 0: not known */
    double best;  /* the least; 0: not known */
    bool open;    /* chunks changed places since the last window whose pace is known */
    bool waits;   /* for the pace of a window after that */
    bool doubted; /* the first was worse */
    bool undoes;
    struct {
        unsigned windows, next; /* until exchanges may begin again; after the next lost trial */
    } rest;
} trial;

static struct chunk_place place_of(const struct gs_exchange_chunk *it)
{
    return (struct chunk_place){it->range->node.base, it->index};
}

/* The program has become slower without an exchange: it does something else now. */
static void begin_trial(void)
{
    if (trial.best == 0 || trial.pace > WORSE_THAN * trial.best) {
        trial.best = trial.pace;
        trial.pairs = 0;
    }
    trial.open = true;
}

/* The two have changed places. beyond->range NULL: the card had room. */
static void note_exchange(const struct gs_exchange_chunk *to_card,
                          const struct gs_exchange_chunk *beyond)
{
    if (!trial.open)
        begin_trial();
    if (trial.pairs == PAIRS_MOST || beyond->range == NULL || beyond->bytes != to_card->bytes)
        return; /* they stay where they are */
    pairs[trial.pairs].to_card = place_of(to_card);
    pairs[trial.pairs++].beyond = place_of(beyond);
}

static void lose_trial(double pace)
{
    unsigned *next = &trial.rest.next;

    gs_log("%u exchanges made the program slower, %.4f instead of %.4f ns a byte: undone",
           trial.pairs, pace, trial.best);
    trial.undoes = trial.pairs != 0;
    trial.best = trial.pace = 0; /* of the time before they are undone */
    *next = *next == 0 ? 1 : 2 * *next;
    *next = *next < REST_MOST ? *next : REST_MOST;
    trial.rest.windows = *next;
}

/* Two windows have to be worse: a busy machine makes one of them long now and then. */
static void judge_trial(double pace)
{
    const bool worse = pace > WORSE_THAN * trial.best;

    if (worse && !trial.doubted) {
        trial.doubted = trial.waits = true;
        return;
    }
    trial.open = trial.doubted = false;
    if (worse) {
        lose_trial(pace);
    } else if (pace <= trial.best) {
        if (WON * pace < trial.best)
            trial.rest.next = 0;
        trial.best = pace;
        trial.pairs = 0;
    }
}

/* Under the lock. False: it is not there any more, or is in the other place already. */
static bool find_place(const struct chunk_place *place, uint8_t state,
                       struct gs_exchange_chunk *found)
{
    struct gs_range *range = gs_range_at(place->base);

    if (range == NULL || range->node.base != place->base ||
        place->index >= range->chunk_count || !gs_exchange_is_free(range, place->index) ||
        range->chunks[place->index].state != state)
        return false;
    *found = (struct gs_exchange_chunk){range, place->index,
                                        gs_range_chunk_bytes(range, place->index),
                                        range->chunks[place->index].heat};
    return true;
}

/* Under gs_memory_lock: the next two that change places back. False: there are none. */
static bool choose_undone(const struct gs_device *device, struct gs_exchange_chunk *to_card,
                          struct gs_exchange_chunk *beyond)
{
    for (; trial.undoes && trial.pairs > 0; trial.pairs--)
        if (find_place(&pairs[trial.pairs - 1].beyond, GS_CHUNK_OVER, to_card) &&
            find_place(&pairs[trial.pairs - 1].to_card, GS_CHUNK_RESIDENT, beyond) &&
            to_card->bytes == beyond->bytes && to_card->range->device == beyond->range->device)
            return to_card->range->device == device; /* else it is another device's turn */
    trial.undoes = false;
    return false;
}

/* --- choosing --- */

static double density_of(const struct gs_exchange_chunk *choice)
{
    return (double)choice->used / (double)choice->bytes;
}

/* Under the lock: finds the most used chunk beyond the card, or the least used one on it, with
 * at least so many bytes. */
static bool find_chunk(const struct gs_device *device, uint8_t state, uint64_t least,
                       struct gs_exchange_chunk *found)
{
    found->range = NULL;
    for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
        for (uint32_t i = 0; i < range->chunk_count; i++) {
            const struct gs_exchange_chunk it = {range, i, gs_range_chunk_bytes(range, i),
                                                 range->chunks[i].heat};

            if (!gs_exchange_is_free(range, i) || range->chunks[i].state != state ||
                it.bytes < least)
                continue;
            if (found->range == NULL ||
                (state == GS_CHUNK_OVER ? density_of(&it) > density_of(found)
                                        : density_of(&it) < density_of(found)))
                *found = it;
        }
    return found->range != NULL;
}

/* Kernels reach host memory about as fast as copies do: both wait for the bus. */
static double bus_ns(double bytes)
{
    return bytes * (gs_exchange_copying() != 0 ? gs_exchange_copying() : COPYING);
}

/* Under the lock: what is to come in next, and what makes room for it (range NULL: nothing has
 * to). */
static bool choose_by_use(const struct gs_device *device, struct gs_exchange_chunk *hot,
                          struct gs_exchange_chunk *cold)
{
    double gain, cost;
    uint64_t room, bytes;

    *cold = (struct gs_exchange_chunk){.range = NULL};
    /* no other exchanges wait to be judged, and the last lost trial is long enough ago */
    if (trial.waits || trial.undoes || trial.rest.windows != 0 || trial.pace == 0 ||
        !find_chunk(device, GS_CHUNK_OVER, 0, hot) || hot->used == 0)
        return false;
    room = gs_exchange_room(device);
    /* one that makes all of the room, if there is one */
    if (room < hot->bytes &&
        ((!find_chunk(device, GS_CHUNK_RESIDENT, hot->bytes - room, cold) &&
          !find_chunk(device, GS_CHUNK_RESIDENT, 0, cold)) ||
         density_of(hot) < 2 * density_of(cold)))
        return false;
    /* both in ns: what is saved on the bus in all windows to come, and what the exchange takes */
    gain =
        (double)hot->used - (cold->range != NULL ? density_of(cold) * (double)hot->bytes : 0);
    gain = bus_ns(gain) * HORIZON;
    bytes = hot->bytes + (cold->range != NULL ? cold->bytes : 0);
    cost = cost_a_byte * (double)bytes;
    if (cost_a_byte == 0)
        cost = MAPPING + bus_ns((double)bytes);
    else if (cost < MAPPED)
        cost = MAPPED;
    return gain > 2 * cost;
}

static bool choose_any(struct gs_exchange_chunk *hot, struct gs_exchange_chunk *cold)
{
    GS_HOLD_MEMORY;
    gs_each_device (device) {
        if (device->accounts.over == 0 || device->accounts.missing != 0 || device->broken)
            continue;
        self.undoes = choose_undone(device, hot, cold);
        if (self.undoes || choose_by_use(device, hot, cold))
            return true;
    }
    return false;
}

/* --- changing places --- */

/* In a context of the device. False: the driver or the host refused something. */
static bool exchange_chunks(const struct gs_exchange_chunk *hot,
                            const struct gs_exchange_chunk *cold)
{
    const uint64_t from = gs_now();
    uint64_t bytes = 0;
    bool done = true, came = false;

    if (!gs_context_enter(hot->range->device))
        return false;
    if (cold->range != NULL) {
        done = gs_exchange_send_beyond(cold);
        bytes += done ? cold->bytes : 0;
    }
    if (done && GS_WITH_MEMORY(gs_exchange_room(hot->range->device) >=
                               hot->bytes)) { /* else another chunk has to leave, too */
        done = came = gs_exchange_fetch(hot);
        bytes += done ? hot->bytes : 0;
    }
    gs_context_pop();
    if (self.undoes) /* the two have changed places back, or could not */
        trial.pairs -= trial.pairs > 0;
    else if (came)
        note_exchange(hot, cold);
    if (bytes != 0) {
        const double each = (double)(gs_now() - from) / (double)bytes;

        cost_a_byte = cost_a_byte == 0 ? each : (3 * cost_a_byte + each) / 4;
        atomic_fetch_add_explicit(&gs_counts.exchanged, bytes, memory_order_relaxed);
    }
    return done;
}

/* --- when --- */

/* A window has ended. Its uses count twice as much as those of the window before. */
static void close_window(uint64_t now)
{
    const uint64_t without = self.window_from + self.idle_ns;
    /* ns for each byte that was used; 0: not known */
    const double pace = now <= without ? 0 : (double)(now - without) / (double)self.noted;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_each_device (device)
        for (struct gs_range *range = device->ranges; range != NULL; range = range->next)
            for (uint32_t k = 0; k < range->chunk_count; k++) {
                range->chunks[k].heat = (range->chunks[k].heat + range->chunks[k].used) / 2;
                range->chunks[k].used = 0;
            }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_uses_age();
    trial.rest.windows -= trial.rest.windows > 0;
    trial.waits = trial.open && pace == 0;
    trial.pace = pace != 0 ? pace : trial.pace;
    if (trial.open && pace != 0)
        judge_trial(pace);
    self.idle_ns = 0;
    self.most = (now - self.window_from) / 2;
    self.window_from = now;
    self.noted = 0;
    self.complete_at = 0;
    gs_uses_anchor(true);
}

/* Of what was used in the windows before, most is used in this one, too. */
static bool has_come_round(void)
{
    uint64_t known = 0, used = 0;

    GS_HOLD_MEMORY;
    gs_each_device (device)
        for (const struct gs_range *range = device->ranges; range != NULL; range = range->next)
            for (uint32_t k = 0; range->life == GS_RANGE_LIVE && k < range->chunk_count; k++) {
                const struct gs_chunk *chunk = &range->chunks[k];
                const uint64_t bytes = gs_range_chunk_bytes(range, k);

                known += chunk->used != 0 || chunk->heat > bytes / UNUSED ? bytes : 0;
                used += chunk->used != 0 ? bytes : 0;
            }
    return known - used <= known / UNUSED;
}

static bool window_is_over(void)
{
    uint64_t all = 0;

    gs_each_device (device) {
        const struct gs_accounts accounts = gs_memory_accounts(device);

        all += accounts.demand + accounts.over;
    }
    if (self.noted >= WINDOW_MOST * all)
        return true;
    if (self.complete_at != 0) /* the memory may have been freed, and never come back */
        return gs_uses_came_back() || self.noted >= 2 * self.complete_at;
    if (self.noted >= WINDOW * all && has_come_round()) {
        self.complete_at = self.noted;
        gs_uses_anchor(false);
    }
    return false;
}

/* The time of the exchanges is not the program's, so it does not count in the open window. */
static void end_exchanges(void)
{
    if (self.began != 0)
        self.window_from += gs_now() - self.began;
    self.began = 0;
    self.pending = false;
    gs_exchange_end();
}

uint64_t gs_placement_look(uint64_t now, bool may_run)
{
    struct gs_exchange_chunk hot, cold;
    uint64_t used, activity;
    bool busy;

    if (gs_runtime.config.placed_once ||
        !atomic_load_explicit(&gs_uses_noted, memory_order_relaxed))
        return UINT64_MAX;
    if (!may_run) {
        end_exchanges();
        if (self.not_run_since == 0)
            self.not_run_since = now;
        return gs_exchange_is_adrift() ? MEND_NS : UINT64_MAX;
    }
    if (self.not_run_since != 0) {
        if (self.window_from != 0)
            self.idle_ns += now - self.not_run_since;
        self.looked_at = now;
        self.not_run_since = 0;
    }
    if (gs_exchange_is_adrift())
        return MEND_NS;
    if (self.pending) /* the next window begins after the effects of this one */
        return LOOK_NS;
    if (now - self.looked_at < LOOK_NS)
        return LOOK_NS - (now - self.looked_at);
    gs_graph_uses_note();
    used = gs_uses_take();
    activity = gs_gate_activity(&busy);
    if (used == 0 && !busy && activity == self.activity && self.window_from != 0)
        self.idle_ns += now - self.looked_at;
    self.activity = activity;
    self.noted += used;
    self.looked_at = now;
    if (self.window_from == 0)
        self.window_from = now;
    if (window_is_over()) {
        close_window(now);
        self.pending = choose_any(&hot, &cold);
        if (!self.pending)
            gs_host_give_up_claim();
    }
    return LOOK_NS;
}

bool gs_placement_needs_stop(void)
{
    return self.pending;
}

bool gs_placement_step(bool may_exchange)
{
    struct gs_exchange_chunk hot, cold;
    const uint64_t now = gs_now();

    gs_exchange_mend(now);
    if (!self.pending || !may_exchange || gs_exchange_is_adrift())
        return false;
    if (self.began == 0)
        self.began = now;
    if (now - self.began > self.most || gs_rdma_is_open() || !choose_any(&hot, &cold) ||
        !exchange_chunks(&hot, &cold))
        end_exchanges();
    return self.pending;
}

void gs_placement_after_fork(void)
{
    memset(&self, 0, sizeof self);
    memset(&trial, 0, sizeof trial);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.c: undoes spreading that made the program slower (trial.h). State: client thread only.
 */
#include "runtime/swap/trial.h"

#include "runtime/base/log.h"
#include "runtime/range/chunk.h"
#include "runtime/range/range.h"

#define PAIRS_MOST 1024u
#define WORSE      1.05 /* times the best pace */
#define REST       8u   /* windows after a lost trial; twice as many after each further one */
#define REST_MOST  4096u

/* A chunk by its range's address: the range may be gone meanwhile. */
struct place {
    CUdeviceptr base;
    uint32_t index;
};

static struct {
    struct {
        struct place to_card, beyond;
    } pairs[PAIRS_MOST]; /* since the best pace, in the order in which they changed places */
    unsigned count;
    double pace; /* ns a byte, of the last window; 0: not known */
    double best; /* the least since spreading began */
    bool open;   /* chunks were spread since the last window whose pace is known */
    bool waits;  /* for the pace of the window after that */
    bool undoes;
    unsigned rest, next_rest; /* windows */
} self;

bool gs_trial_may_spread(void)
{
    return !self.waits && !self.undoes && self.rest == 0 && self.pace != 0;
}

static struct place place_of(const struct gs_exchange_chunk *it)
{
    return (struct place){it->range->node.base, it->index};
}

void gs_trial_note(const struct gs_exchange_chunk *to_card,
                   const struct gs_exchange_chunk *beyond)
{
    if (self.best == 0)
        self.best = self.pace;
    self.open = true;
    if (self.count == PAIRS_MOST)
        return; /* those that are left out stay where they are */
    self.pairs[self.count].to_card = place_of(to_card);
    self.pairs[self.count++].beyond = place_of(beyond);
}

static void lose_trial(double pace)
{
    gs_log(
        "spreading %u chunks made the program slower, %.4f instead of %.4f ns a byte: undone",
        self.count, pace, self.best);
    self.undoes = self.count != 0;
    self.best = 0;
    self.next_rest = self.next_rest == 0 ? REST : 2 * self.next_rest;
    self.next_rest = self.next_rest < REST_MOST ? self.next_rest : REST_MOST;
    self.rest = self.next_rest;
}

void gs_trial_end_window(double pace)
{
    if (self.rest > 0)
        self.rest--;
    self.waits = self.open && pace == 0;
    if (pace == 0)
        return;
    self.pace = pace;
    if (!self.open)
        return;
    self.open = false;
    if (pace > WORSE * self.best)
        lose_trial(pace);
    else if (pace <= self.best) {
        self.best = pace;
        self.count = 0;
    }
}

/* Under the lock. False: it is not there any more, or is in the other place already. */
static bool find_place(const struct place *place, uint8_t state,
                       struct gs_exchange_chunk *found)
{
    struct gs_range *range = gs_range_at(place->base);

    if (range == NULL || range->node.base != place->base ||
        place->index >= range->chunk_count || range->chunks[place->index].state != state ||
        !gs_exchange_is_free(range, place->index))
        return false;
    *found = (struct gs_exchange_chunk){range, place->index,
                                        gs_range_chunk_bytes(range, place->index),
                                        range->chunks[place->index].heat};
    return true;
}

bool gs_trial_choose(const struct gs_device *device, struct gs_exchange_chunk *to_card,
                     struct gs_exchange_chunk *beyond)
{
    for (; self.undoes && self.count > 0; self.count--)
        if (find_place(&self.pairs[self.count - 1].beyond, GS_CHUNK_OVER, to_card) &&
            find_place(&self.pairs[self.count - 1].to_card, GS_CHUNK_RESIDENT, beyond) &&
            to_card->bytes == beyond->bytes && to_card->range->device == beyond->range->device)
            return to_card->range->device == device; /* else it is another device's turn */
    self.undoes = false;
    return false;
}

void gs_trial_undone(void)
{
    self.count -= self.count > 0;
}

void gs_trial_forget(void)
{
    self.count = 0;
    self.best = self.pace = 0;
    self.open = self.waits = self.undoes = false;
}

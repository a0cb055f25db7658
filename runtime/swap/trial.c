/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.c: undoes exchanges that made the program slower (trial.h). State: client thread only.
 */
#include "runtime/swap/trial.h"

#define PAIRS_MOST 4096u
#define WON        1.05 /* times as fast */
#define REST_MOST  4096u
#define WORSE_THAN 1.25 /* times the best pace: the counted uses speak for an exchange */

/* A chunk by its range's address: the range may be gone meanwhile. */
struct place {
    CUdeviceptr base;
    uint32_t index;
};

/* since the best pace, in the order in which they changed places; not in self, which a fork clears */
static struct {
    struct place to_card, beyond;
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
} self;

bool gs_trial_may_begin(void)
{
    return !self.waits && !self.undoes && self.rest.windows == 0 && self.pace != 0;
}

static struct place place_of(const struct gs_exchange_chunk *it)
{
    return (struct place){it->range->node.base, it->index};
}

/* The program has become slower without an exchange: it does something else now. */
static void begin_trial(void)
{
    if (self.best == 0 || self.pace > WORSE_THAN * self.best) {
        self.best = self.pace;
        self.pairs = 0;
    }
    self.open = true;
}

void gs_trial_note(const struct gs_exchange_chunk *to_card,
                   const struct gs_exchange_chunk *beyond)
{
    if (!self.open)
        begin_trial();
    if (self.pairs == PAIRS_MOST || beyond->range == NULL || beyond->bytes != to_card->bytes)
        return; /* they stay where they are */
    pairs[self.pairs].to_card = place_of(to_card);
    pairs[self.pairs++].beyond = place_of(beyond);
}

void gs_trial_note_undone(void)
{
    self.pairs -= self.pairs > 0;
}

static void lose_trial(double pace)
{
    unsigned *next = &self.rest.next;

    gs_log("%u exchanges made the program slower, %.4f instead of %.4f ns a byte: undone",
           self.pairs, pace, self.best);
    self.undoes = self.pairs != 0;
    self.best = self.pace = 0; /* of the time before they are undone */
    *next = *next == 0 ? 1 : 2 * *next;
    *next = *next < REST_MOST ? *next : REST_MOST;
    self.rest.windows = *next;
}

/* Two windows have to be worse: a busy machine makes one of them long now and then. */
static void judge_trial(double pace)
{
    const bool worse = pace > WORSE_THAN * self.best;

    if (worse && !self.doubted) {
        self.doubted = self.waits = true;
        return;
    }
    self.open = self.doubted = false;
    if (worse) {
        lose_trial(pace);
    } else if (pace <= self.best) {
        if (WON * pace < self.best)
            self.rest.next = 0;
        self.best = pace;
        self.pairs = 0;
    }
}

void gs_trial_end_window(double pace)
{
    self.rest.windows -= self.rest.windows > 0;
    self.waits = self.open && pace == 0;
    if (pace == 0)
        return;
    self.pace = pace;
    if (self.open)
        judge_trial(pace);
}

/* Under the lock. False: it is not there any more, or is in the other place already. */
static bool find_place(const struct place *place, uint8_t state,
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

bool gs_trial_choose(const struct gs_device *device, struct gs_exchange_chunk *to_card,
                     struct gs_exchange_chunk *beyond)
{
    for (; self.undoes && self.pairs > 0; self.pairs--)
        if (find_place(&pairs[self.pairs - 1].beyond, GS_CHUNK_OVER, to_card) &&
            find_place(&pairs[self.pairs - 1].to_card, GS_CHUNK_RESIDENT, beyond) &&
            to_card->bytes == beyond->bytes && to_card->range->device == beyond->range->device)
            return to_card->range->device == device; /* else it is another device's turn */
    self.undoes = false;
    return false;
}

void gs_trial_after_fork(void)
{
    memset(&self, 0, sizeof self);
}

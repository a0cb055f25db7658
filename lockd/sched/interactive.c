/* SPDX-License-Identifier: Apache-2.0
 *
 * interactive.c: which parties are interactive. Owns what is known of a party's bursts.
 *
 * A party is interactive if its bursts are short and it rests between them, by its own history
 * or because it was said to be. How long the others let it go first: shares.c. All is O(1).
 */
#include "lockd/sched/interactive.h"

#include "lockd/sched/quantum.h"

#define BURST_MOST  (8000 * NS_PER_MS) /* of an interactive party */
#define GROWN_MOST  (16 * BURST_MOST)  /* ... with what came while it lasted */
#define GROWS       2                  /* times what comes usually may come while it lasts */
#define HIDDEN_ROW  6 /* so many bursts in a row, one known to be interactive is not judged by */
#define LONG_COUNTS 3 /* a longer one of such a party counts as so many times the longest */
#define SHORT_STILL 2 /* an interactive one goes on being one with this part more */
#define REST_LEAST  3 /* it rests for at least this part of a burst ... */
#define REST_STILL  8 /* ... and goes on being interactive with this one */
#define RESTS_SEEN  4 /* before that it is taken to rest for long enough */
#define VAIN        4 /* times in a row that it wanted to run and did not */
#define TRIES_MOST  64
#define AGAIN_FOR   2 /* switches; one that is interactive again can run for so long, at least */
#define TRY_AFTER   2 /* bursts that waited; twice as many when that was in vain */
#define IDLE_STEP   10
#define IDLE_PART   8
#define GAP_FORGET  64
#define KEPT        2 /* switches; for so long a place is kept, at most */
#define SETTLED                                                                                \
    2 /* switches: a holder that has run for less keeps its turn from a new program */

double sched_device_keeps(const struct sched_device *device)
{
    return (double)sched_settings_floor(&device->sched->settings) / (double)PPM *
           (1 - device->share.due);
}

bool sched_party_is_steady(const struct sched_party *party)
{
    return party->bursts.usual != LOCKD_NEVER &&
           party->bursts.off <= party->bursts.usual / BURST_SPARE;
}

/* One whose bursts are steady, and worth a turn, has ended one when it pauses. */
uint64_t sched_party_idle(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const uint64_t idle = sched_device_idle(device);

    if (device->sched->settings.idle_ns != LOCKD_AUTO)
        return idle;
    if (party->bursts.idle != 0 && party->bursts.first)
        return sched_clamp(party->bursts.idle, IDLE_MIN, idle);
    if (!sched_party_is_steady(party) || party->bursts.usual < sched_device_quantum(device) / 2)
        return idle;
    return sched_max(idle / 4, IDLE_MIN);
}

/* How long the bursts of an interactive party usually are, at most. Whoever sets a quantum means by
 * it how long others wait for a program. */
static uint64_t usual_most(const struct sched_party *party)
{
    const uint64_t quantum = party->device->sched->settings.quantum_ns;

    if (quantum != LOCKD_AUTO)
        return sched_min(quantum / 2, BURST_MOST);
    if (!party->bursts.came_up || party->bursts.usual == LOCKD_NEVER)
        return sched_min(sched_device_quantum(party->device), BURST_MOST);
    return BURST_MOST;
}

/* Its history says so, before the present burst. */
bool sched_party_is_known(const struct sched_party *party)
{
    const struct sched_party_bursts *bursts = &party->bursts;

    return bursts->usual != LOCKD_NEVER && bursts->is_short && bursts->rests;
}

/* other: it was other work than before (is_other_work), which is not cut short. */
static void note_usual(struct sched_party *party, uint64_t burst, bool other)
{
    struct sched_party_bursts *bursts = &party->bursts;
    const uint64_t usual = bursts->usual;
    uint64_t most;

    if (sched_party_is_known(party) && !other)
        burst = sched_min(burst, LONG_COUNTS * BURST_MOST);
    if (usual == LOCKD_NEVER) {
        bursts->usual = burst;
        bursts->off = burst * 3 / 10;
    } else {
        bursts->usual = usual - usual / 4 + burst / 4;
        bursts->off +=
            (sched_less(burst, usual) + sched_less(usual, burst)) / 4 - bursts->off / 4;
    }
    most = usual_most(party);
    bursts->is_short = bursts->usual <= (bursts->is_short ? most + most / SHORT_STILL : most);
}

static uint32_t try_after(const struct sched_party_bursts *bursts)
{
    return bursts->try_after == 0 ? TRY_AFTER : bursts->try_after;
}

/* So many bursts waited that nothing is known of what they would be else: the present one is served
 * at once, to see. */
static bool is_tried(const struct sched_party *party)
{
    return !sched_party_is_known(party) && party->bursts.waited >= try_after(&party->bursts);
}

/* The part of the time for which work comes, by its bursts and rests so far, with something to
 * spare. It has had bursts of a known length. */
static double measure_coming(const struct sched_party *party)
{
    const double usual = (double)party->bursts.usual;

    return GROWS * usual / (usual + (double)party->bursts.rest + 1);
}

/* How much of its present burst may have come while it lasts, as a part of the time: no more than is
 * left to interactive parties. */
static double measure_growth(const struct sched_party *party)
{
    const struct sched_party_bursts *bursts = &party->bursts;
    const double left = 1 - sched_device_keeps(party->device), coming = measure_coming(party);

    if (!bursts->came_up || bursts->usual == LOCKD_NEVER || is_tried(party))
        return 0;
    return coming < left ? coming : left;
}

/* How long its present burst may last. What came since it began makes a burst of one that is known
 * longer, by as much as it usually does. A program that has begun to work without an end, as a
 * training does after short bursts, is found by that. */
static uint64_t burst_most(const struct sched_party *party, uint64_t now)
{
    const double grown = measure_growth(party) * (double)sched_less(now, party->bursts.began);

    return sched_min(usual_most(party) + (uint64_t)grown, GROWN_MOST);
}

/* A burst that had to wait says little about its length: it may be several short ones that came
 * meanwhile, and it could not rest between them. */
static bool had_to_wait(const struct sched_party *party, uint64_t ran, uint64_t waited)
{
    const uint64_t coming = COMING * sched_device_switch(party->device),
                   most = sched_party_is_known(party) || ran > BURST_MOST ? ran / 4 : ran / 2;

    return party->device->sched->settings.quantum_ns == LOCKD_AUTO &&
           (party->bursts.piled || waited > sched_max(most, coming));
}

/* By its bursts and rests before, much less work would have come meanwhile: so it is one long burst,
 * and counts in full. */
static bool is_other_work(const struct sched_party *party, uint64_t ran, uint64_t waited)
{
    return party->bursts.usual != LOCKD_NEVER &&
           (double)sched_less(ran, LONG_COUNTS * usual_most(party)) >
               measure_coming(party) * (double)(ran + waited);
}

/* A hidden burst does not count. A party that is known to be interactive stays so for a few of
 * them: else it would have to wait longer, for ever longer ones. Of others a short one is short
 * all the same. */
static bool says_nothing(const struct sched_party *party, uint64_t ran)
{
    const struct sched_party_bursts *bursts = &party->bursts;

    return bursts->waited != 0 && bursts->waited <= HIDDEN_ROW &&
           (sched_party_is_known(party) || ran > BURST_MOST);
}

/* One that is tried, and gives way before it has run, would do so again and again. */
void sched_party_trial_ends(struct sched_party *party)
{
    if (is_tried(party) && party->turn.started == 0)
        party->bursts.waited = 0;
}

/* A burst that was served at once to see its length: if it was short, the party's history begins
 * anew with it. The next one is tried later, until the party is known to be interactive. */
static void note_tried(struct sched_party_bursts *bursts, uint64_t burst, bool hidden)
{
    bursts->try_after = (uint32_t)sched_min(2ull * try_after(bursts), TRIES_MOST);
    bursts->waited = 0;
    if (hidden || burst > BURST_MOST)
        return;
    bursts->usual = LOCKD_NEVER;
    bursts->seen = 0;
}

/* It has had nothing to do for some time; how long did it have something? idle: ns of that it
 * had the device without work. The first burst is like none after it. */
static void burst_over(struct sched_party *party, uint64_t idle, uint64_t now)
{
    struct sched_party_bursts *bursts = &party->bursts;
    const uint64_t ran = bursts->now, waited = sched_less(now - bursts->began, ran);
    bool waits, other, hidden;

    bursts->now = 0;
    bursts->rested = true;
    if (ran == 0)
        return;
    bursts->vain = 0;
    bursts->pile = sched_party_is_known(party) ? 0 : bursts->pile + ran;
    if (bursts->pile == 0)
        bursts->long_turn = 0;
    waits = had_to_wait(party, ran, waited);
    other = waits && is_other_work(party, ran, waited);
    hidden = waits && !other;
    if (!bursts->came_up) {
        bursts->came_up = true;
        bursts->began_long = !hidden && sched_less(ran, idle) > BURST_MOST;
        bursts->piled = false;
        return;
    }
    if (bursts->piled && hidden)
        bursts->waited = (uint32_t)sched_max(bursts->waited + 1, try_after(bursts));
    else if (is_tried(party))
        note_tried(bursts, sched_less(ran, idle), hidden);
    else if (hidden)
        bursts->waited++;
    else if (sched_party_is_known(party) || ran > BURST_MOST)
        bursts->waited = 0;
    bursts->said_nothing = hidden && says_nothing(party, sched_less(ran, idle));
    if (!bursts->said_nothing)
        note_usual(party, sched_less(ran, idle), other);
    bursts->piled = false;
}

/* One that has just stopped may be between two calls: whether it has anything to do shows
 * later. */
void sched_burst_ended(struct sched_party *party, bool runs, uint64_t now)
{
    const uint64_t idle = sched_party_idle(party);

    if (party->bursts.now == 0 && party->bursts.vain < VAIN)
        party->bursts.vain++;
    party->bursts.quiet_at = runs ? LOCKD_NEVER : now;
    party->bursts.rest_at = runs ? sched_less(now, idle) : now;
    if (runs)
        burst_over(party, idle, now);
}

/* How long it may idle follows the gaps inside its bursts. Rests shorter than the full time, one
 * after another, were such gaps, and ended its turn too soon. */
static void learn_idle(struct sched_party *party, uint64_t rest)
{
    struct sched_party_bursts *bursts = &party->bursts;
    const uint64_t full = sched_device_idle(party->device);

    if (rest < full && bursts->short_rest != 0)
        bursts->gap = sched_max(bursts->gap, sched_max(rest, bursts->short_rest));
    else if (rest >= full)
        bursts->gap -= bursts->gap / GAP_FORGET;
    bursts->short_rest = rest < full ? rest : 0;
    if (bursts->idle == 0 || bursts->idle > full)
        bursts->idle = full;
    bursts->idle -= bursts->idle / IDLE_STEP;
    bursts->idle =
        sched_max(bursts->idle, sched_clamp(2 * bursts->gap, full / IDLE_PART, full));
}

void sched_burst_begun(struct sched_party *party, uint64_t now)
{
    struct sched_party_bursts *bursts = &party->bursts;
    uint64_t rest;

    if (bursts->quiet_at != LOCKD_NEVER && now - bursts->quiet_at >= sched_party_idle(party))
        burst_over(party, 0, bursts->quiet_at);
    bursts->quiet_at = LOCKD_NEVER;
    if (bursts->now == 0)
        bursts->began = now;
    if (bursts->rest_at == 0)
        return;
    rest = sched_less(now, bursts->rest_at);
    bursts->rest_at = 0;
    if (!bursts->came_up)
        return;
    learn_idle(party, rest);
    /* the rest after a burst that says nothing may be the only one among many short gaps */
    if (bursts->said_nothing && !sched_party_is_known(party))
        return;
    bursts->rest = bursts->rest == 0 ? rest : bursts->rest - bursts->rest / 4 + rest / 4;
    if (bursts->usual == LOCKD_NEVER)
        return;
    if (bursts->seen < RESTS_SEEN) {
        bursts->rests =
            ++bursts->seen < RESTS_SEEN || bursts->rest >= bursts->usual / REST_LEAST;
        return;
    }
    bursts->rests = bursts->rest >= bursts->usual / (bursts->rests ? REST_STILL : REST_LEAST);
    if (sched_party_is_known(party))
        bursts->try_after = 0;
}

/* It was between two calls when its turn was ended before its time, so whether it comes back shows
 * within the time that it may idle. To let another one go on costs two switches, so no more time than
 * that is kept for it. */
uint64_t sched_device_back_at(const struct sched_device *device)
{
    const struct sched_party *back = device->waiting.back;
    uint64_t until;

    if (back == NULL || !back->turn.interrupted || back->turn.held ||
        back->wait.queued_of != NULL || back->bursts.quiet_at == LOCKD_NEVER)
        return LOCKD_NEVER;
    until = back->bursts.quiet_at +
            sched_min(sched_party_idle(back), KEPT * sched_device_switch(device));
    return device->share.at < until ? until : LOCKD_NEVER;
}

/* For how long the present burst has run. */
static uint64_t burst_now(const struct sched_party *party, uint64_t now)
{
    const bool runs = party->books.running_members != 0;

    return party->bursts.now + (runs ? sched_less(now, party->time.counted_at) : 0);
}

/* One that is new, or has rested once, is taken for interactive until a burst that need not wait
 * shows more; so is, for one burst, one of which all has long been hidden by waiting. */
bool sched_party_is_interactive(const struct sched_party *party, uint64_t now)
{
    const struct sched_party_bursts *bursts = &party->bursts;
    const enum gs_wire_class class = sched_gang_class(party->gang);

    if (class != GS_CLASS_AUTO)
        return class == GS_CLASS_INTERACTIVE;
    if (burst_now(party, now) > burst_most(party, now) || bursts->vain >= VAIN)
        return false;
    if (bursts->usual == LOCKD_NEVER)
        return party->device->sched->settings.quantum_ns == LOCKD_AUTO && !bursts->began_long;
    return is_tried(party) || sched_party_is_known(party);
}

/* When one that is interactive is none any more, if its present burst goes on. What comes meanwhile
 * lets it be longer, so what is left shrinks more slowly than the time passes. */
uint64_t sched_party_shows_at(const struct sched_party *party, uint64_t now)
{
    const uint64_t ran = burst_now(party, now), left = sched_less(burst_most(party, now), ran),
                   most = sched_less(GROWN_MOST, ran);
    const double shrinks = 1 - measure_growth(party);

    if (sched_gang_class(party->gang) == GS_CLASS_INTERACTIVE)
        return LOCKD_NEVER;
    if ((double)left >= (double)most * shrinks)
        return now + LOOK_AGAIN + most;
    return now + LOOK_AGAIN + (uint64_t)((double)left / shrinks);
}

/* When one that is known to be interactive, but whose present burst has been too long, is so
 * again while it waits: the burst does not get longer, and what comes meanwhile lets it be; for
 * long enough to be worth the switches. LOCKD_NEVER: not before it runs. */
uint64_t sched_party_again_at(const struct sched_party *party, uint64_t now)
{
    const uint64_t ran = burst_now(party, now) + AGAIN_FOR * sched_device_switch(party->device);
    const double grows = measure_growth(party);

    if (sched_gang_class(party->gang) != GS_CLASS_AUTO || !sched_party_is_known(party) ||
        ran > GROWN_MOST || grows <= 0)
        return LOCKD_NEVER;
    return party->bursts.began + LOOK_AGAIN +
           (uint64_t)((double)sched_less(ran, usual_most(party)) / grows);
}

/* ... one that has the device as an interactive party. */
uint64_t sched_party_lasts_until(const struct sched_party *party, uint64_t now)
{
    if (!party->bursts.first || !sched_party_is_interactive(party, now))
        return now;
    return sched_party_shows_at(party, now);
}

/* Its present burst is long, and it is not interactive: what came while it waited may have piled
 * up. One that has never rested has to have waited for its first turn. Where more than one other
 * would have to wait for it, its bursts so far have to speak for it. */
bool sched_party_piles_up(const struct sched_party *party, uint64_t now)
{
    const struct sched_party_bursts *bursts = &party->bursts;
    const bool may_be_short = bursts->came_up && !bursts->began_long &&
                              (bursts->is_short || bursts->seen < RESTS_SEEN);

    return (may_be_short ||
            (party->device->party_count <= 2 && (bursts->came_up || bursts->came_late))) &&
           party->gang->party_count == 1 &&
           party->device->sched->settings.quantum_ns == LOCKD_AUTO &&
           sched_gang_class(party->gang) == GS_CLASS_AUTO &&
           burst_now(party, now) > usual_most(party) && !sched_party_is_interactive(party, now);
}

/* Its present burst has been long enough that a new program may end its turn: what the two switches
 * cost is little of what it had, or of a turn. */
uint64_t sched_party_long_at(const struct sched_party *party, uint64_t now)
{
    const uint64_t least = sched_min(SETTLED * sched_device_switch(party->device),
                                     sched_device_quantum(party->device));

    return now + sched_less(least, burst_now(party, now));
}

/* One that is new has shown nothing yet: it goes in turn, but its first turn comes soon. */
bool sched_party_is_new(const struct sched_party *party)
{
    return !party->bursts.came_up && sched_gang_class(party->gang) != GS_CLASS_INTERACTIVE;
}

bool sched_party_goes_first(const struct sched_party *party, uint64_t now)
{
    return party->device->sched->settings.policy == GS_POLICY_FAIR &&
           !sched_party_is_new(party) && sched_party_is_interactive(party, now);
}

enum gs_wire_class sched_party_class(const struct sched_party *party, uint64_t now)
{
    const enum gs_wire_class class = sched_gang_class(party->gang);

    if (class != GS_CLASS_AUTO)
        return class;
    return sched_party_is_known(party) && sched_party_is_interactive(party, now)
               ? GS_CLASS_INTERACTIVE
               : GS_CLASS_BATCH;
}

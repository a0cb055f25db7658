/* SPDX-License-Identifier: Apache-2.0
 *
 * balance.c: keeps the programs and cards, chooses the program that moves, and takes the outcome of
 * each move (docs/architecture.md, "Several devices").
 *
 * A program's loss is the part of its waits by which the other programs of its card have more work
 * than those of the other card; where all run at the same time, the part by which they slow it down
 * more. Losses fade, so that rare short waits never add up to a move. A failed move is tried again
 * after a minute; each further failure makes that time four times longer, up to an hour. It holds
 * for a card, for a program or for all programs, depending on the outcome.
 */
#include "lockd/move/balance.h"

#include <stdlib.h>
#include <string.h>

/* Estimates the part of the time in which each program would use a card of its own. It is
 * the time that the program ran on the card that it shares, divided by that time and the
 * time in which it had nothing to do; waiting is left out. The sum over the programs of a
 * card tells how busy they would keep it. A program that moves counts on its target only.
 * Owns struct balance_past and the sums of the places. */

#define FADES   43e9 /* ns of work and rest; half of it counts after 30 s */
#define ASSUMED 1e9  /* ns of work that each program is given in advance */

static struct balance_sight *balance_sight_find(const struct balance_program *program,
                                                const struct balance_place *place)
{
    lockd_each (struct balance_sight, sight, &program->sights, link) {
        if (sight->place == place)
            return sight;
    }
    return NULL;
}

/* NULL: no program sees such a card. */
static struct balance_place *balance_place_find(const struct balance *balance,
                                                const uint8_t *uuid)
{
    lockd_each (struct balance_place, place, &balance->places, link) {
        if (memcmp(place->card.uuid, uuid, sizeof place->card.uuid) == 0)
            return place;
    }
    return NULL;
}

/* The program is on another card now: its earlier figures no longer serve for comparison. */
static void balance_load_forget(struct balance_program *program)
{
    program->past.seen_at = 0;
    program->past.ran_ns = program->past.waited_ns = 0;
}

static uint64_t later_by(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* Its work since the last look. */
static void take_past(struct balance_program *program, uint64_t now)
{
    struct balance_past *past = &program->past;
    const struct sched_load *load = &program->load;
    const uint64_t ran = later_by(load->run_ns, past->run_ns),
                   waited = later_by(load->wait_ns, past->wait_ns),
                   rested = later_by(now, past->seen_at + ran + waited);

    past->ran_ns = past->waited_ns = 0;
    if (past->seen_at != 0) {
        const double keeps = 1 / (1 + (double)(ran + rested) / FADES);

        past->ran_ns = ran;
        past->waited_ns = waited;
        past->ran = past->ran * keeps + (double)ran;
        past->rested = past->rested * keeps + (double)rested;
    }
    past->seen_at = now;
    past->run_ns = load->run_ns;
    past->wait_ns = load->wait_ns;
    program->part = (past->ran + ASSUMED) / (past->ran + past->rested + ASSUMED);
}

static void place_add(struct balance_place *place, const struct balance_program *program,
                      const struct sched_load *load)
{
    place->pinned += load->pinned;
    if (load->class == GS_CLASS_BACKGROUND)
        place->background += program->part;
    else
        place->work += program->part;
    if (load->class == GS_CLASS_INTERACTIVE)
        place->interactive += program->part;
}

/* A program is on one card, as nearly all are, or on several. */
static bool take_program(struct balance *balance, struct balance_program *program, uint64_t now)
{
    struct sched_load load;

    program->home = NULL;
    if (!balance->ask(program->client, 0, &program->load, now)) {
        balance_load_forget(program);
        program->load.waits = false;
        return false;
    }
    take_past(program, now);
    for (uint32_t number = 0; balance->ask(program->client, number, &load, now); number++) {
        struct balance_place *place = balance_place_find(balance, load.uuid);

        if (place == NULL)
            continue;
        place->capacity = load.capacity;
        if (load.alone)
            program->home = balance_sight_find(program, place);
        if (program->to == NULL)
            place_add(place, program, &load);
    }
    return program->load.waits || program->past.waited_ns != 0 ||
           (program->past.ran_ns != 0 && !program->load.turns);
}

/* Reads the load of all programs and adds it up for all cards. Returns whether any program
 * waited, or may have lost time to others that run at the same time. */
static bool balance_load_take(struct balance *balance, uint64_t now_ns)
{
    bool waits = false;

    lockd_each (struct balance_place, place, &balance->places, link) {
        place->work = place->background = place->interactive = 0;
        place->pinned = place->capacity = 0;
    }
    lockd_each (struct balance_program, each, &balance->programs, link)
        waits = take_program(balance, each, now_ns) || waits;
    if (balance->moving != NULL)
        place_add(balance->moving->to, balance->moving, &balance->moving->load);
    return waits;
}

#define SECOND     1000000000ull
#define LOOK       (SECOND / 2)
#define LOOK_CALM  (2 * SECOND) /* while nobody waits */
#define LATER      (2 * SECOND)
#define OVERHEAD   (1200 * SECOND / 1000) /* until a move was measured */
#define RATE       50000000000.0          /* bytes a second */
#define LOST_LEAST 2                      /* times the cost */
#define LOST_FADES                                                                             \
    23.0 /* times that loss; waits of less than one part in so many never count */
#define MOVES_FADE     (600 * SECOND) /* after so long one recent move is forgotten */
#define MOVES_MOST     8
#define RETRY          (60 * SECOND)
#define RETRY_MOST     (3600 * SECOND)
#define LITTLE         0.05 /* of a card's time */
#define SPARE_OF_TOTAL 16   /* an empty card has less room by that part */

/* --- cards --- */

static struct balance_place *place_get(struct balance *balance, const struct lockd_seen *card)
{
    struct balance_place *place = balance_place_find(balance, card->uuid);

    if (place != NULL)
        return place;
    place = calloc(1, sizeof *place);
    if (place != NULL) {
        place->card = *card;
        lockd_list_append(&balance->places, &place->link);
    }
    return place;
}

void balance_sees(struct balance *balance, struct balance_program *program,
                  const struct lockd_seen *card)
{
    struct balance_sight *sight;

    if (program->sight_count == LOCKD_DEVICES_PER_CLIENT)
        return;
    sight = calloc(1, sizeof *sight);
    if (sight == NULL)
        return;
    sight->place = place_get(balance, card);
    if (sight->place == NULL || balance_sight_find(program, sight->place) != NULL) {
        free(sight);
        return;
    }
    sight->card = *card;
    sight->place->seen_by++;
    program->sight_count++;
    lockd_list_append(&program->sights, &sight->link);
}

/* --- programs --- */

/* The move of the program is over, or will not begin. */
static void end_moving(struct balance *balance)
{
    if (balance->moving != NULL)
        balance->moving->to = NULL;
    balance->moving = NULL;
    balance->ordered = false;
}

struct balance_program *balance_came(struct balance *balance, const struct sched_client *client,
                                     void *owner)
{
    struct balance_program *program = calloc(1, sizeof *program);

    if (program == NULL)
        return NULL;
    program->client = client;
    program->owner = owner;
    program->part = 1;
    lockd_list_append(&balance->programs, &program->link);
    return program;
}

void balance_gone(struct balance *balance, struct balance_program *program)
{
    if (program == NULL)
        return;
    if (balance->moving == program)
        end_moving(balance);
    lockd_each (struct balance_sight, sight, &program->sights, link) {
        if (--sight->place->seen_by == 0) {
            lockd_list_remove(&sight->place->link);
            free(sight->place);
        }
        free(sight);
    }
    lockd_list_remove(&program->link);
    free(program);
}

void balance_init(struct balance *balance, balance_ask *ask, balance_say *say, void *context)
{
    *balance =
        (struct balance){.overhead_ns = OVERHEAD, .ask = ask, .say = say, .context = context};
}

void balance_deinit(struct balance *balance)
{
    lockd_each (struct balance_program, each, &balance->programs, link)
        balance_gone(balance, each);
}

/* A move that has begun has ended. */
void balance_set(struct balance *balance, bool on)
{
    if (balance->on == on)
        return;
    balance->on = on;
    balance->look_at = 0;
    balance->failures = (struct balance_failures){0};
    if (!balance->ordered)
        end_moving(balance);
    lockd_each (struct balance_program, program, &balance->programs, link) {
        balance_load_forget(program);
        program->lost = 0;
    }
}

/* --- what a move costs, and what staying does --- */

uint64_t balance_cost(const struct balance *balance, const struct balance_program *program)
{
    const double bytes = (double)program->load.resident + (double)program->load.demand;

    return balance->overhead_ns + (uint64_t)(bytes / RATE * 1e9);
}

static void fade_moves(struct balance_program *program, uint64_t now)
{
    while (program->moves != 0 && now - program->moves_at >= MOVES_FADE) {
        program->moves--;
        program->moves_at += MOVES_FADE;
    }
}

/* The loss that the program needs before it moves. */
static double least_loss(const struct balance *balance, const struct balance_program *program)
{
    return (double)(balance_cost(balance, program) * LOST_LEAST) *
           (double)(1u << program->moves);
}

/* The work of other programs that makes it wait. Nothing waits for a background program. */
static double work_beside(const struct balance_program *program,
                          const struct balance_place *place)
{
    const bool behind = program->load.class == GS_CLASS_BACKGROUND;
    const double work = place->work + (behind ? place->background : 0),
                 own = place == program->home->place ? program->part : 0;

    return work > own ? work - own : 0;
}

/* The part of its waits that it would not have on that card; 0: the card is no better. */
static double gain_of(const struct balance_program *program, const struct balance_place *place,
                      uint64_t total)
{
    const double here = work_beside(program, program->home->place),
                 there = work_beside(program, place), busy = program->home->place->interactive;
    const uint64_t demand = program->load.demand, most = place->capacity != 0
                                                             ? place->capacity
                                                             : total - total / SPARE_OF_TOTAL;

    if (demand > most || place->pinned > most - demand)
        return 0; /* there is no room */
    /* a program that computes does not move to a card on which interactive programs have more work
     * than on its present card */
    if (program->load.class != GS_CLASS_INTERACTIVE &&
        place->interactive > (busy > LITTLE ? busy : LITTLE))
        return 0;
    if (demand > program->load.capacity)
        return 1; /* it does not fit where it is */
    /* clearly less, so that no program moves to and fro */
    return there + (here / 8 > 0.1 ? here / 8 : 0.1) <= here ? 1 - there / here : 0;
}

/* The best card for the program. visible: of those that it sees; else of all others. */
static struct balance_place *best_for(const struct balance *balance,
                                      const struct balance_program *program, bool visible,
                                      double *gain, uint64_t now)
{
    const struct balance_sight *home = program->home;
    struct balance_place *best = NULL;

    *gain = 0;
    lockd_each (struct balance_place, place, &balance->places, link) {
        const struct balance_sight *sight = balance_sight_find(program, place);
        const struct lockd_seen *card = sight != NULL ? &sight->card : &place->card;
        double found;

        if (sight == home || (sight != NULL) != visible || card->total != home->card.total ||
            strncmp(card->name, home->card.name, sizeof card->name) != 0 ||
            (sight != NULL && now < sight->failures.retry_at))
            continue; /* not of the same model, or it did not work */
        found = gain_of(program, place, card->total);
        if (found > *gain) {
            *gain = found;
            best = place;
        }
    }
    return best;
}

/* The part of its time that a program loses when it runs at the same time as others that want
 * the card for so much of the time. */
static double slowed_by(const struct balance_program *program, double others)
{
    const double all = program->part + others;

    return all > 1 ? 1 - 1 / all : 0;
}

/* The time that it has lost since the last look because it was not on that card, ns. */
static double loss_of(const struct balance_program *program, const struct balance_place *place,
                      double gain)
{
    const double here = work_beside(program, program->home->place),
                 there = work_beside(program, place);
    double lost = (double)program->past.waited_ns * gain;

    if (!program->load.turns && there < here)
        lost += (double)program->past.ran_ns *
                (slowed_by(program, here) - slowed_by(program, there));
    return lost;
}

/* Adds the loss since the last look. Returns the card to move to, if the program has lost
 * enough. excess: how many times as much as is enough. */
static struct balance_place *weigh_program(const struct balance *balance,
                                           struct balance_program *program, double *excess,
                                           uint64_t now)
{
    struct balance_place *place, *hidden = NULL;
    double gain;

    fade_moves(program, now);
    if (program->home == NULL || program->to != NULL || now < program->failures.retry_at)
        return NULL;
    place = best_for(balance, program, true, &gain, now);
    if (place == NULL)
        hidden = best_for(balance, program, false, &gain, now);
    if (gain > 0)
        program->lost += loss_of(program, place != NULL ? place : hidden, gain);
    *excess = program->lost / least_loss(balance, program);
    if (*excess < 1 || (program->load.turns && !program->load.waits))
        return NULL;
    if (hidden != NULL && !program->said && balance->say != NULL) {
        program->said = true;
        balance->say(
            balance->context, program->owner,
            "another GPU of the same model has less to do, but this program cannot move "
            "there: it does not see that GPU (CUDA_VISIBLE_DEVICES)");
    }
    return place;
}

/* Chooses the program that has lost most, relative to the price. */
static void choose_program(struct balance *balance, uint64_t now)
{
    double most = 0;

    lockd_each (struct balance_program, program, &balance->programs, link) {
        double excess = 0;
        struct balance_place *to = weigh_program(balance, program, &excess, now);

        if (to == NULL || excess <= most || balance->ordered ||
            now < balance->failures.retry_at)
            continue;
        end_moving(balance);
        most = excess;
        program->to = to;
        balance->moving = program;
    }
}

uint64_t balance_tend(struct balance *balance, uint64_t now_ns)
{
    bool waits;

    if (!balance->on || lockd_list_empty(&balance->programs))
        return LOCKD_NEVER;
    if (now_ns < balance->look_at)
        return balance->look_at;
    if (!balance->ordered)
        end_moving(balance);
    waits = balance_load_take(balance, now_ns);
    lockd_each (struct balance_program, each, &balance->programs, link)
        each->lost /=
            1 + (double)(waits ? LOOK : LOOK_CALM) / (LOST_FADES * least_loss(balance, each));
    choose_program(balance, now_ns);
    balance->look_at = now_ns + (waits ? LOOK : LOOK_CALM);
    return balance->look_at;
}

bool balance_next(struct balance *balance, struct balance_move *move)
{
    if (balance->moving == NULL || balance->ordered)
        return false;
    balance->ordered = true;
    move->owner = balance->moving->owner;
    memcpy(move->from, balance->moving->home->card.uuid, sizeof move->from);
    memcpy(move->to, balance->moving->to->card.uuid, sizeof move->to);
    return true;
}

/* --- outcomes --- */

static void count_failure(struct balance_failures *failures, uint64_t now)
{
    uint64_t pause = RETRY;

    for (uint32_t i = 0; i < failures->count && pause < RETRY_MOST; i++)
        pause *= 4;
    failures->count++;
    failures->retry_at = now + (pause < RETRY_MOST ? pause : RETRY_MOST);
}

static void note_moved(struct balance *balance, struct balance_program *program, uint64_t now)
{
    struct balance_sight *sight =
        program->to != NULL ? balance_sight_find(program, program->to) : NULL;

    fade_moves(program, now);
    if (program->moves == 0)
        program->moves_at = now;
    program->moves += program->moves < MOVES_MOST;
    program->failures = balance->failures = (struct balance_failures){0};
    if (sight != NULL)
        sight->failures = (struct balance_failures){0};
    balance_load_forget(program);
}

void balance_outcome(struct balance *balance, struct balance_program *program,
                     enum lockd_move_end outcome, uint64_t ns, uint64_t bytes, uint64_t now_ns)
{
    const bool ours = balance->moving == program && balance->ordered;
    const uint64_t rest = later_by(ns, (uint64_t)((double)bytes / RATE * 1e9)); /* no copies */

    if (outcome != LOCKD_MOVE_LATER)
        program->lost = 0;
    if (outcome == LOCKD_MOVE_DONE) {
        if (ns != 0) {
            balance->overhead_ns =
                balance->measured ? (3 * balance->overhead_ns + rest) / 4 : rest;
            balance->measured = true;
        }
        note_moved(balance, program, now_ns);
    } else if (ours && outcome == LOCKD_MOVE_LATER) {
        program->failures.retry_at = now_ns + LATER;
    } else if (ours && outcome == LOCKD_MOVE_NOT_THERE) {
        count_failure(&balance_sight_find(program, program->to)->failures, now_ns);
    } else if (ours && outcome == LOCKD_MOVE_NOT_IT) {
        count_failure(&program->failures, now_ns);
    } else if (ours && outcome == LOCKD_MOVE_NOBODY) {
        count_failure(&balance->failures, now_ns);
    }
    if (balance->moving == program)
        end_moving(balance);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * policy_fair.c: weighted virtual time, in rounds.
 *
 * A party's virtual time is the time that it ran while others waited, times 100 by its weight.
 * The device's `level` is the virtual time that every party should have by the end of the
 * present round; each round raises it by a quantum (of a party of average weight). A turn
 * lasts until the party's virtual time is at the level of its round. So a party that got too
 * much or too little, because its work could not be stopped at once, is made even in its next
 * turn. Within a round those that were interrupted in it go first, then users come by turns:
 * a party's number is what its user's parties had and will have had before it, so the parties of
 * one user keep the order of their arrival. A party that is owed more than OWED rounds has its
 * place in an earlier one: else two that fit beside each other and are interrupted again and again
 * would pass a third one in every round. With equal parties this is round robin with equal shares.
 * With weights, turns are longer or shorter, and a party whose part of a round would not be worth a
 * switch sits rounds out until it is.
 *
 * A party that has nothing to do saves up one turn at most; what others' turns owe it already it
 * keeps, up to SAVED quanta. A party that goes first (shares.c) saves up to SAVED turns where few
 * share the device, since requests come in clusters. It has its place before all rounds, by its age
 * in steps of AGE_STEP switches, and may end another party's turn before its time. Of the others a
 * turn that ends long before its time is charged with the switches that it caused, so these come
 * out of the share of the party that causes them.
 *
 * A turn is made longer, up to BURST_LONGEST quanta, when a burst as long as the last one ends in
 * it: otherwise two programs that compute on the GPU and the CPU by turns would do both in
 * step. It is charged like any other time.
 *
 * A gang that has its place on the first of its devices and is due on the next one goes first
 * there too, and ends the turn of a party that runs on that device alone: otherwise the first
 * device would wait for the turns on all the others.
 *
 * A gang does not go first there if its own turn was ended for another before its time, or if it
 * was stopped for one that still waits: two that may end each other's turns would do nothing
 * else.
 *
 * A party that is behind its round by overrun (a kernel that could not be stopped), or because it
 * went first, is kept waiting for DEBT_ROUNDS at most. Beside parties of other users a turn may be
 * as long as its party waited: turns in which nothing runs may be far longer than a quantum.
 */
#include "lockd/sched/device.h"
#include "lockd/sched/policy.h"
#include "lockd/sched/quantum.h"
#include "lockd/sched/vain.h"

#define DEBT_ROUNDS 4
/* quanta; the rest of it follows when the others of the round had theirs */
#define TURN_LONGEST  4
#define BURST_LONGEST 3 /* quanta that a turn may last so that a burst ends in it */
#define BURST_SPARE   4 /* a burst may be longer than the last one by one part in so many */
#define SAVED         4 /* turns; or quanta */
#define OWED          2 /* rounds; one that is owed more has its place before its round */
#define WORTH         2 /* a turn of at least this part of a quantum */

enum { FIRST, BACK_AGAIN, IN_TURN, CLASSES };

/* Its user's share of the device, over the part of all weights that the user's parties have: a
 * program of a user with many programs counts for less. */
static double user_factor(const struct sched_device *device, const struct sched_user *user)
{
    if (user == NULL || user->weights == 0 || user->weights == device->wanting.weights)
        return 1;
    return sched_user_share(device, user) * (double)device->wanting.weights /
           (double)user->weights;
}

/* Its weight among all parties on the device. */
static double weight_of(const struct sched_party *party)
{
    return party->gang->weight * user_factor(party->device, party->wanting.user);
}

static uint64_t to_virtual(const struct sched_party *party, uint64_t ns)
{
    return (uint64_t)((double)ns * GS_WEIGHT_DEFAULT / weight_of(party));
}

static uint64_t to_real(const struct sched_party *party, uint64_t virtual_ns)
{
    return (uint64_t)((double)virtual_ns * weight_of(party) / GS_WEIGHT_DEFAULT);
}

/* How far the level rises with a round: a party of average weight gets a quantum. */
static uint64_t round_step(const struct sched_device *device)
{
    const uint64_t quantum = sched_device_quantum(device);

    return sched_max(1, quantum * GS_WEIGHT_DEFAULT * device->party_count /
                            sched_max(device->books.weights, 1));
}

/* What a short turn costs beyond its own time: the switch to it, and the one back if it ended
 * another turn before its time. */
static uint64_t switch_charge(const struct sched_party *party, bool interrupts)
{
    return to_virtual(party, sched_device_switch(party->device) * (interrupts ? 2 : 1));
}

/* A turn of its own, or a round, if that is more. */
static uint64_t turn_of(const struct sched_party *party)
{
    const struct sched_device *device = party->device;

    return sched_max(round_step(device), to_virtual(party, sched_device_quantum(device)));
}

/* One that is new begins with a turn of credit; also when it runs before it ever waited. */
static void begin_credit(struct sched_party *party)
{
    if (party->fair.virtual_ns == 0)
        party->fair.virtual_ns = sched_less(party->device->fair.level, turn_of(party));
}

/* What it may still have in the present round. */
static uint64_t credit_left(struct sched_party *party)
{
    const struct sched_device *device = party->device;

    begin_credit(party);
    party->fair.virtual_ns = sched_min(party->fair.virtual_ns,
                                       device->fair.level + round_step(device) * DEBT_ROUNDS);
    return sched_less(device->fair.level, party->fair.virtual_ns);
}

static uint64_t turns_saved(const struct sched_party *party)
{
    const uint64_t others = sched_less(party->device->party_count, 1);

    /* a program that has never rested has saved nothing */
    if (!party->bursts.first || party->bursts.last == LOCKD_NEVER)
        return 1;
    return sched_max(SAVED / sched_max(others, 1), 1);
}

/* A turn, or SAVED of them. Or, up to SAVED quanta, what was owed to it before it rested (it may have
 * waited for much longer), with a turn of what the level has risen by since. */
static uint64_t most_owed(const struct sched_party *party)
{
    const uint64_t turn = turn_of(party), then = party->fair.level_then,
                   before = sched_less(then, party->fair.virtual_ns),
                   since = sched_min(sched_less(party->device->fair.level, then), turn),
                   most = to_virtual(party, SAVED * sched_device_quantum(party->device));

    return sched_max(turn * turns_saved(party), sched_min(before + since, most));
}

/* It had nothing to do: its share of that time is owed to it, also where nobody waited
 * meanwhile, so that the level stood still. What the level has risen by since it last ran it
 * has already. */
static void credit_rest(struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const uint64_t away = sched_less(party->time.counted_at, party->time.last_ran),
                   owed = (uint64_t)((double)away * GS_WEIGHT_DEFAULT /
                                     (double)sched_max(device->books.weights, 1));
    uint64_t paid, least, most;

    begin_credit(party);
    most = most_owed(party);
    if (away == 0)
        return;
    if (party->bursts.rested) /* waiting alone adds nothing to what was saved up */
        paid = sched_less(
            party->fair.virtual_ns,
            sched_less(owed, sched_less(device->fair.level, party->fair.level_then)));
    else
        paid = sched_less(sched_max(party->fair.virtual_ns, device->fair.level), owed);
    least = sched_less(device->fair.level, most);
    if (!party->bursts.rested) /* what it is owed since others were served stays its own */
        least = sched_min(least, party->fair.virtual_ns);
    party->fair.virtual_ns = sched_max(sched_min(party->fair.virtual_ns, paid), least);
    party->bursts.rested = false;
}

/* Its gang has places on other devices already, which nobody can use meanwhile. */
static bool is_assembling(const struct sched_party *party)
{
    return party->gang->party_count > 1 && party->gang->held_count != 0;
}

/* Before all rounds: those whose turns were cut by age, after all others. */
static uint64_t age_place(const struct sched_party *party)
{
    const uint64_t step = AGE_STEP * sched_max(sched_device_switch(party->device), 1);

    if (!party->bursts.cut || sched_gang_class(party->gang) == GS_CLASS_INTERACTIVE)
        return 0;
    return sched_min(1 + sched_party_age(party, party->time.counted_at) / step,
                     ROUND_START - 1);
}

static uint64_t place_party(struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const uint64_t step = round_step(device),
                   worth = to_virtual(party, sched_device_quantum(device) / WORTH);
    const bool stopped = party->turn.interrupted || party->wait.yields;
    uint64_t have, behind;

    if (!party->turn.held)
        party->bursts.first =
            sched_share_goes_first(party, sched_max(party->time.counted_at, device->share.at));
    /* a party that is not young goes first out of the account, whose turn was cut or not */
    if (party->bursts.first && !sched_party_is_young(party, party->time.counted_at))
        party->bursts.cut = false;
    credit_rest(party);
    have = credit_left(party);
    behind = sched_less(party->fair.virtual_ns, device->fair.level);
    party->fair.round = device->fair.round;
    if (party->bursts.first)
        return age_place(party);
    if (!stopped && is_assembling(party) && have >= switch_charge(party, true))
        return party->fair.round * CLASSES + FIRST;
    if (have < worth)
        party->fair.round += (worth - have + behind + step - 1) / step;
    else if (have > OWED * step)
        party->fair.round -= sched_min(have / step - 1, sched_less(party->fair.round, 1));
    return party->fair.round * CLASSES + (party->turn.interrupted ? BACK_AGAIN : IN_TURN);
}

/* The longest turn. Beside programs of other users it may be as long as the party did not run:
 * their turns may have been longer than a quantum. */
static uint64_t longest_turn(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const uint64_t longest = sched_device_quantum(device) * TURN_LONGEST;

    if (!device->measure.several || party->time.last_ran == 0)
        return longest;
    return sched_max(longest, sched_less(device->share.at, party->time.last_ran));
}

/* The length of a turn that makes up for so much. */
static uint64_t length_by(const struct sched_party *party, uint64_t virtual_ns)
{
    return sched_clamp(to_real(party, virtual_ns),
                       sched_device_quantum(party->device) / WORTH / 2, longest_turn(party));
}

/* --- in a round users come by turns --- */

static struct sched_user *user_of(const struct sched_party *party)
{
    return sched_user_of(party->device, sched_party_first(party)->client->user,
                         party->time.counted_at);
}

static uint64_t to_clock(const struct sched_user *user, uint64_t ns)
{
    const double weight = sched_user_weight(user);

    return (uint64_t)((double)ns * GS_WEIGHT_DEFAULT /
                      (weight == 0 ? GS_WEIGHT_DEFAULT : weight));
}

/* What its user's parties had, and will have had that come before it. */
static uint64_t number_party(struct sched_party *party)
{
    struct sched_user *user = user_of(party);

    if (user == NULL)
        return party->device->fair.clock;
    user->clock = sched_max(user->clock, party->device->fair.clock);
    user->number = sched_max(
        user->number + 1,
        user->clock + to_clock(user, user->wanting * length_by(party, credit_left(party))));
    return user->number;
}

static void count_user(struct sched_party *party, uint64_t ns)
{
    struct sched_user *user = party->wanting.user;

    if (user != NULL)
        user->clock += to_clock(user, ns);
}

/* Until it has nothing to do, if this burst is as long as the last one, with something to spare; 0:
 * that is longer than others can be made to wait for it. */
static uint64_t rest_of_burst(const struct sched_party *party)
{
    const uint64_t last = party->bursts.last;

    if (last > sched_device_quantum(party->device) * BURST_LONGEST)
        return 0;
    return sched_less(last + last / BURST_SPARE, party->bursts.age);
}

/* The device goes on to the round of the turn that begins; not for one that runs while the
 * next in turn waits, or that runs already when turns begin to be taken. */
static uint64_t turn_length(struct sched_party *party)
{
    struct sched_device *device = party->device;
    const uint64_t have = credit_left(party),
                   behind = sched_less(party->fair.virtual_ns, device->fair.level);
    const uint64_t quantum = sched_device_quantum(device);
    uint64_t rise = 0, turn;

    if (party->fair.round > device->fair.round)
        rise = (party->fair.round - device->fair.round) * round_step(device);
    if (!party->turn.backfilled && !party->turn.begun) {
        device->fair.level += rise;
        device->fair.round = sched_max(device->fair.round, party->fair.round);
        if (party->wanting.user != NULL) {
            party->wanting.user->clock =
                sched_max(party->wanting.user->clock, device->fair.clock);
            device->fair.clock = party->wanting.user->clock;
        }
    }
    turn = sched_max(rest_of_burst(party), length_by(party, sched_less(have + rise, behind)));
    if (!party->bursts.first)
        return turn;
    if (party->turn.interrupts || sched_gang_class(party->gang) == GS_CLASS_INTERACTIVE)
        turn = sched_max(rest_of_burst(party), sched_min(quantum, YOUNG));
    return sched_max(turn, sched_min(sched_share_turn(party), quantum * BURST_LONGEST));
}

/* Time that it has by going first counts, too: a party with piled-up requests has no turns beside
 * those that the account pays for, until the others have had as much, or DEBT_ROUNDS. */
static void count_ran(struct sched_party *party, uint64_t ns, bool contended, uint64_t now)
{
    sched_share_ran(party, ns, contended, now);
    if (!contended)
        return;
    count_user(party, ns);
    begin_credit(party);
    party->fair.virtual_ns += to_virtual(party, ns);
}

/* Others were kept off for it for so long, and it did not run: it and its user pay as if it had. */
static void pay_for(struct sched_party *party, uint64_t ns)
{
    count_user(party, ns);
    party->fair.virtual_ns += to_virtual(party, ns);
    party->time.last_ran = party->time.counted_at;
    sched_share_charge(party, ns, party->time.counted_at);
}

/* A turn of full length pays nothing for its switch, one of no length all of it; one beside others, for
 * which nobody stopped, nothing. A party that did not come to run, and was not interrupted, pays for
 * the time that others waited for it. */
static void charge_turn(struct sched_party *party)
{
    const uint64_t length = sched_max(party->turn.length, 1);
    const uint64_t missing = sched_less(length, party->time.ran) * 100 / length;

    if (party->device->turns.waiters && !party->turn.interrupted &&
        (party->turn.interrupts || !party->turn.backfilled) && !party->share.first)
        party->fair.virtual_ns += switch_charge(party, party->turn.interrupts) * missing / 100;
    if (party->turn.interrupts && party->turn.started == 0 && !party->turn.interrupted)
        pay_for(party, sched_less(party->time.counted_at, party->turn.cleared));
    else if (party->turn.skipped != 0 || sched_vain_was_late(party))
        pay_for(party, party->turn.vain);
    party->turn.interrupts = false;
}

static void charge_given_up(struct sched_party *party)
{
    party->fair.virtual_ns += switch_charge(party, true);
    pay_for(party, sched_less(party->time.counted_at, party->device->cleared.at));
    party->turn.interrupts = false;
}

/* What is owed to it, or by it, was meant in such turns: else it would have many in a row, or
 * none, before it is even. */
static void shorten_debts(struct sched_party *party, double part)
{
    const uint64_t level = party->device->fair.level, is = party->fair.virtual_ns;

    if (is == 0)
        return;
    party->fair.virtual_ns = level - (uint64_t)((double)sched_less(level, is) * part) +
                             (uint64_t)((double)sched_less(is, level) * part);
}

static uint64_t ahead_at(const struct sched_party *head, const struct sched_party *holder,
                         uint64_t now)
{
    /* not the turn for which its own was ended; two gangs would end each other's turns for ever */
    if (!holder->gang->runs ||
        (head->turn.interrupted && head->wait.behind_arrival == holder->wait.arrival) ||
        (is_assembling(head) && holder->gang->party_count != 1))
        return LOCKD_NEVER;
    if (head->bursts.first)
        return sched_share_ahead_at(head, holder, now);
    return is_assembling(head) && head->wait.queued.key % CLASSES == FIRST ? now : LOCKD_NEVER;
}

/* What it was stopped in has come to its end. */
static bool has_rested(const struct sched_party *party)
{
    return party->bursts.rested;
}

static uint64_t moves_at(const struct sched_party *party, uint64_t now)
{
    if (!party->bursts.first)
        return sched_share_again_at(party, now);
    return sched_party_is_unproven(party) ? sched_share_young_until(party, now) : LOCKD_NEVER;
}

/* Its burst counts among the others from now on. */
static void note_cut(struct sched_party *party)
{
    party->bursts.cut = true;
    sched_share_note(party);
}

const struct sched_policy sched_policy_fair = {
    .ran = count_ran,
    .place = place_party,
    .number = number_party,
    .length = turn_length,
    .anew = has_rested,
    .moves_at = moves_at,
    .back_until = sched_device_back_at,
    .ended = charge_turn,
    .cut = note_cut,
    .gave_up = charge_given_up,
    .shorter = shorten_debts,
    .ahead = ahead_at,
};

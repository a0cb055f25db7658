/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.c: which party goes first, whose turn it may end, and for how long the others let it.
 * Owns the accounts of users, and a device's account of the time for which the others were held
 * off.
 *
 * A party goes first while it is young: while it has run little since it last rested (bursts.c). It
 * may end the turn of a party that is older by far. A party that is young no more goes first again
 * in two cases, if it is younger by far than every holder, and not new to other users. Its bursts are
 * brief, so that requests have piled up, and the account is not below zero: it then counts as younger
 * than any party with long bursts. Or the device's account is full. Two bounds hold for all that:
 *
 * - the *floor*: of the time in which both want the device, the others keep at least `floor` of
 *   their fair share. The device's account `spare` rises while one of them runs, falls while they
 *   are held off (the switches to and fro are part of that), and stands still otherwise. A party
 *   that goes first and comes while the account is below zero waits until it is not any more, so
 *   the wait is as long as what is owed: a moment after one burst too many, never a whole turn.
 *   Where the next of the others would be served if nobody went first, they are held off, although
 *   a small one may run all the time beside all others.
 *   A turn that is had by going first lasts until the account is spent, so a pile of requests is
 *   answered in few turns.
 * - the *fair share* of its user: what the user's parties had by going first is remembered with a
 *   half-life. Up to the fair share nothing more is asked. Beyond it the account must hold ever
 *   more, so a user with a great many bursts gets what the others leave, and takes nothing from
 *   another user's programs that go first, which come before it until then.
 *
 * Fair shares are those of the parties that want the device now, by weight; of users, by the mean
 * weight of their parties. All is O(1), but for a look at the holders when they changed or when a
 * party comes to wait, and, where one of the others has a turn, at holders and queue while a party
 * goes first.
 */
#include "lockd/sched/shares.h"

#include "lockd/sched/denial.h"
#include "lockd/sched/device.h"
#include "lockd/sched/quantum.h"

#define BEYOND 4                     /* by this part of a fair share one may exceed it */
#define TIMES  2                     /* a party that is younger by far: as old twice over ... */
#define LONG   (480000 * NS_PER_MS)  /* above that all parties are equally old */
#define PILED  (7200000 * NS_PER_MS) /* for no longer than that requests pile up */
#define SPENT  (8000 * NS_PER_MS)    /* the account is below zero by that much */
#define FULL   10 /* less than this part of SPARE_MOST is missing: the account is full */

/* --- accounts that fade --- */

static double smaller_of(double a, double b)
{
    return a < b ? a : b;
}

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

/* The part of the time that is kept for parties that do not go first. */
static double keeps_of(const struct sched_device *device)
{
    return (double)device->sched->settings.floor_ppm / (double)PPM * (1 - device->share.due);
}

/* How fast the account rises: not at all if the floor is 100 % and nobody has gone first yet. */
static double rise_of(const struct sched_device *device)
{
    return larger_of(1 - keeps_of(device), 0.01);
}

static bool is_said(const struct sched_party *party)
{
    return sched_gang_class(party->gang) == GS_CLASS_INTERACTIVE;
}

/* As a part of the time: one that always had the device has 1. */
static double faded_part(const struct sched_faded *account, uint64_t now)
{
    return (double)sched_faded_read(account, now) * 0.6931 / (double)HALF_LIFE;
}

/* --- who wants the device --- */

static void count_wanting(struct sched_party *party, int sign)
{
    struct sched_device_share *share = &party->device->share;
    const uint32_t one = (uint32_t)sign;

    if (party->share.first)
        share->first_weights += (uint64_t)sign * party->share.weight;
    share->batch_queued += party->share.batch_queued ? one : 0;
    share->batch_beside += party->share.batch_beside ? one : 0;
    if (party->share.user != NULL && party->share.first)
        party->share.user->first_weights += (uint64_t)sign * party->share.weight;
}

void sched_share_note(struct sched_party *party)
{
    struct sched_party_share *share = &party->share;
    const bool queued = party->wait.queued.of == &party->device->waiting.queue;

    count_wanting(party, -1);
    share->batch_queued = share->batch_beside = share->first = false;
    share->user = party->wanting.user;
    share->weight = party->gang->weight;
    if (!party->wanting.wants)
        return;
    /* the class may have been set since */
    share->first = party->bursts.first && (is_said(party) || !party->bursts.cut) &&
                   (is_said(party) || sched_gang_class(party->gang) == GS_CLASS_AUTO);
    share->batch_queued = queued && !share->first && party->turn.skipped == 0;
    share->batch_beside = !queued && party->turn.backfilled && !share->first;
    count_wanting(party, 1);
}

void sched_share_charge(struct sched_party *party, uint64_t ns, uint64_t now)
{
    party->fair.level_then = party->device->fair.level;
    sched_faded_add(&party->share.all, ns, now);
    if (!party->bursts.first)
        return;
    party->bursts.went |= party->turn.interrupts;
    if (party->wanting.user != NULL)
        sched_faded_add(&party->wanting.user->had, ns, now);
}

void sched_share_ran(struct sched_party *party, uint64_t ns, bool contended, uint64_t now)
{
    party->fair.level_then = party->device->fair.level;
    if (contended)
        sched_share_charge(party, ns, now);
    if (party->gang->wanting == 0)
        return; /* it keeps a place that nobody wants */
    if (party->bursts.last == LOCKD_NEVER && party->wanting.user != NULL)
        sched_faded_add(&party->wanting.user->fresh,
                        sched_min(ns, sched_less(YOUNG, party->bursts.age)), now);
    party->bursts.age += ns;
}

/* The part of the device that is due to the parties that go first together: by weight, and no more
 * than by users. */
static double due_to_first(const struct sched_device *device)
{
    double first = 0;

    lockd_each (const struct sched_user, user, &device->wanting.users, of_device)
        first += user->first_weights != 0 ? sched_user_share(device, user) : 0;
    if (device->wanting.weights == 0)
        return 1;
    return smaller_of((double)device->share.first_weights / (double)device->wanting.weights,
                      first);
}

/* What the parties of its user had by going first, as a part of the user's fair share. */
static double user_had(const struct sched_party *party, uint64_t now)
{
    const struct sched_user *user = party->wanting.user;

    if (user == NULL || user->weights == 0)
        return 0;
    return faded_part(&user->had, now) / sched_user_share(party->device, user);
}

/* --- the device's account --- */

/* What must be in the account before a party goes first that had so much of what is due. */
static double asked_for(double had)
{
    return had <= 1 ? 0 : (had - 1) * BEYOND * (double)SPARE_MOST;
}

/* Are its bursts brief, so that its present one is as long as it is because requests piled up? */
static bool is_brief(const struct sched_party *party, uint64_t now)
{
    return party->bursts.brief && sched_party_age(party, now) < PILED;
}

/* Down to this the account is spent. A party that has shown long bursts leaves what others need
 * whose bursts are brief; so does one of which other users know nothing yet. */
static double spent_at(const struct sched_party *party, uint64_t now)
{
    const bool is_new = party->bursts.last == LOCKD_NEVER && !sched_party_is_unproven(party);

    return is_new || is_brief(party, now) ? -(double)SPENT : 0;
}

/* For how long a party that goes first may keep the device from now on. */
static uint64_t keeps_for(const struct sched_party *party, uint64_t now)
{
    const struct sched_device *device = party->device;
    const double left =
        device->share.spare - spent_at(party, now) - asked_for(user_had(party, now));

    return (uint64_t)(larger_of(left, 0) / larger_of(keeps_of(device), 0.1));
}

static uint64_t young_for(const struct sched_party *party, uint64_t now)
{
    return sched_less(sched_party_young_most(party), sched_party_age(party, now));
}

uint64_t sched_share_young_until(const struct sched_party *party, uint64_t now)
{
    return now + young_for(party, now);
}

/* Until when a holder that goes first keeps its turn from those that do not. It gets no older while
 * it does not run; when it begins to, the holders are looked at again. */
static uint64_t goes_until(const struct sched_party *party, uint64_t now)
{
    const struct sched_device *device = party->device;
    uint64_t left;

    if (!party->share.first)
        return now;
    if (party->books.running_members == 0 || is_said(party) ||
        device->share.batch_queued + device->share.batch_beside == 0)
        return LOCKD_NEVER;
    left = sched_max(young_for(party, now), keeps_for(party, now));
    return left == 0 ? now : now + LOOK_AGAIN + left;
}

uint64_t sched_share_turn(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const uint64_t now = device->share.at;

    if (is_said(party) || device->sched->settings.quantum_ns != LOCKD_AUTO ||
        device->share.first_weights > (party->share.first ? party->share.weight : 0))
        return 0;
    return sched_max(young_for(party, now), keeps_for(party, now));
}

bool sched_share_goes_on(const struct sched_party *party, uint64_t now)
{
    return party->share.first && goes_until(party, now) > now;
}

/* The holders, as far as it matters here. */
static const struct sched_device_share *look_at_holders(struct sched_device *device,
                                                        uint64_t now)
{
    struct sched_device_share *share = &device->share;

    if (share->generation == device->turns.generation)
        return share;
    share->generation = device->turns.generation;
    share->batch_held = share->batch_runs = share->batch_went = false;
    share->going = share->coming = NULL;
    lockd_each (const struct sched_party, party, &device->turns.holders, turn.holder) {
        if (sched_party_is_background(party))
            continue;
        if (sched_share_goes_on(party, now)) {
            if (share->going == NULL || goes_until(party, now) >= goes_until(share->going, now))
                share->going = party;
        } else if (!party->turn.backfilled) {
            share->batch_went = (share->batch_went || !share->batch_held) &&
                                party->bursts.went && is_brief(party, now);
            share->batch_held = true;
            share->batch_runs = share->batch_runs || party->books.running_members != 0;
            share->coming = party;
        }
    }
    return share;
}

/* Would the first of the others that wait be served now if no party went first? It has to fit
 * beside those of the others whose turn is not over: the rest would give way to it. */
static bool is_kept_off(const struct sched_device *device, uint64_t now)
{
    const struct sched_party *waits = NULL;
    uint64_t need = 0;

    sched_each_queued (party, &device->waiting.queue) {
        if (party->share.batch_queued) {
            waits = party;
            break;
        }
    }
    if (waits == NULL || device->sched->settings.exclusive)
        return false;
    lockd_each (const struct sched_party, party, &device->turns.holders, turn.holder) {
        if (!sched_party_is_background(party) && !party->turn.backfilled &&
            now < party->turn.until && !sched_share_goes_on(party, now))
            need += party->books.need;
    }
    need += waits->books.need + device->books.lost - waits->books.lost;
    return need <= device->space.capacity;
}

static void count_for(struct sched_device *device, uint64_t ns, bool held_off)
{
    struct sched_device_share *share = &device->share;
    const double keeps = keeps_of(device), part = (double)ns;

    if (held_off)
        device->turns.held_off_ns += ns;
    share->spare += held_off ? -part * keeps : part * (1 - keeps);
    share->spare = smaller_of(share->spare, (double)SPARE_MOST);
    share->spare = larger_of(share->spare, -(double)SPARE_MOST);
}

/* Held off are the others while a party that goes first has the device or comes to it, and until the
 * one of them that comes runs; one that is slow to come is so for reasons of its own. Nothing is
 * counted while the party waits for a program of another user that was told to stop and runs on. */
void sched_share_count(struct sched_device *device, uint64_t now)
{
    struct sched_device_share *share = &device->share;
    const uint64_t since = share->at, until = sched_clamp(share->off_until, since, now);

    share->at = now;
    if (now <= since || share->stands)
        return;
    if (share->held_off && until > since)
        count_for(device, until - since, true);
    if (!share->held_off) {
        if (!share->batch_went || share->first_weights != 0 || !device->turns.leases)
            count_for(device, now - since, false);
    } else if (now > until)
        count_for(device, now - until, false);
}

/* Does a program run on that was told to stop: of another user than `party`; NULL: a program that went
 * first? */
static bool runs_on(const struct sched_device *device, const struct sched_party *party)
{
    lockd_each (const struct sched_member, member, &device->books.stopping, books.stopping) {
        if (sched_party_runs_on(member->party) &&
            (party == NULL ? member->party->bursts.first
                           : sched_denial_is_other(member, sched_party_first(party))))
            return true;
    }
    return false;
}

void sched_share_settle(struct sched_device *device, uint64_t now)
{
    struct sched_device_share *share = &device->share;
    const struct sched_party *cleared = device->cleared.party;
    const bool leases = device->turns.leases, comes = cleared != NULL && cleared->share.first;
    bool ends, kept;

    sched_share_count(device, now);
    look_at_holders(device, now);
    if (share->first_weights != 0)
        share->due = due_to_first(device);
    share->off_until = LOCKD_NEVER;
    share->stands = comes && runs_on(device, cleared);
    /* a party that goes first has had its turn, and has not stopped yet */
    ends = share->held_off && runs_on(device, NULL);
    kept = leases && share->batch_held && (share->going != NULL || comes || ends) &&
           is_kept_off(device, now);
    if ((!leases && share->batch_runs) || (share->batch_queued == 0 && !share->batch_held)) {
        share->held_off = false;
    } else if (leases && share->going != NULL && (kept || !share->batch_runs)) {
        share->held_off = true;
        share->off_until = goes_until(share->going, now);
    } else if (share->batch_held && !kept) {
        if (share->coming->books.running_members != 0)
            share->held_off = false;
        else
            share->off_until =
                share->coming->turn.progress + COMING * sched_device_switch(device);
    } else if (comes) {
        share->held_off = true;
    } else if (share->going == NULL && sched_device_back_at(device) != LOCKD_NEVER) {
        share->held_off = false; /* they wait for one of them */
    }
}

/* When both the account is as full as is asked of it, and what it had has faded so far that no more
 * than that is asked. */
static uint64_t pays_at(const struct sched_party *party, uint64_t now)
{
    const double had = user_had(party, now), has = party->device->share.spare,
                 most = 0.9 * (double)SPARE_MOST, most_had = 1 + 0.9 / BEYOND,
                 asked = smaller_of(asked_for(had), most);
    const uint64_t fades =
        had <= most_had ? 0 : (uint64_t)((had / most_had - 1) * (double)HALF_LIFE);
    const uint64_t fills =
        asked <= has ? 0 : (uint64_t)((asked - has) / rise_of(party->device));

    return fades == 0 && fills == 0 ? now : now + LOOK_AGAIN + sched_max(fades, fills);
}

/* --- whose turn it may end --- */

/* The age from which on the holder is older than `head` by far; LOCKD_NEVER: there is none. A
 * party with brief bursts that is not young has piled up requests, and counts as younger than any
 * with long bursts. */
static uint64_t older_from(const struct sched_party *head, const struct sched_party *holder,
                           uint64_t now)
{
    const uint64_t settled = AGE_STEP * sched_device_switch(head->device),
                   least = TIMES * sched_party_age(head, now) + settled;

    /* not that of a young one, which could end its turn in return */
    if (is_brief(head, now) && !is_brief(holder, now))
        return sched_min(least, sched_max(settled, sched_party_young_most(holder)));
    if (is_brief(holder, now) && !is_brief(head, now) && !sched_party_is_young(head, now))
        return LOCKD_NEVER;
    return least <= LONG ? least : LOCKD_NEVER;
}

/* From when on the holder is older than `head` by far, if it goes on to run; LOCKD_NEVER: not as
 * long as `head` waits. A holder that was young at the end of its last burst may well end this one
 * so, and is not disturbed before. `head` has to have stopped, and to have come to run whenever it
 * was its turn; a program that comes back to a new daemon waits until it has rested. A class that
 * was given counts for more than an age. */
static uint64_t older_at(const struct sched_party *head, const struct sched_party *holder,
                         uint64_t now)
{
    uint64_t least;

    if (is_said(holder) || head->books.running_members != 0 || head->turn.skipped != 0 ||
        (head->bursts.last == LOCKD_NEVER && sched_party_first(head)->sent.first_seq != 0))
        return LOCKD_NEVER;
    if (is_said(head))
        return now;
    least = sched_max(older_from(head, holder, now), sched_party_undisturbed(holder));
    if (least == LOCKD_NEVER)
        return LOCKD_NEVER;
    return now + sched_less(least, sched_party_age(holder, now));
}

uint64_t sched_share_ahead_at(const struct sched_party *head, const struct sched_party *holder,
                              uint64_t now)
{
    const uint64_t older = older_at(head, holder, now);

    /* the turn of a program that goes first takes nothing from the others, of which `head` is one */
    if (holder->share.first && !head->share.first)
        return older;
    return sched_max(older, pays_at(head, now));
}

/* An unproven party does not go first by the account. But it is young again when what its user's
 * other new programs had is forgotten. */
static uint64_t new_again_at(const struct sched_party *party, uint64_t now)
{
    if (party->bursts.age >= YOUNG)
        return LOCKD_NEVER;
    return now + LOOK_AGAIN +
           sched_less(sched_party_news(party, now), YOUNG) * (HALF_LIFE / YOUNG);
}

uint64_t sched_share_again_at(const struct sched_party *party, uint64_t now)
{
    const struct sched_device *device = party->device;
    const uint64_t full = is_brief(party, now) ? 0 : SPARE_MOST - SPARE_MOST / FULL;
    const double missing = (double)full - device->share.spare;
    uint64_t at = now + TELL_PAUSE, older = now; /* there may be holders then */

    if (sched_gang_class(party->gang) != GS_CLASS_AUTO || !sched_party_comes_to_run(party) ||
        device->sched->settings.quantum_ns != LOCKD_AUTO)
        return LOCKD_NEVER;
    if (sched_party_is_unproven(party))
        return new_again_at(party, now);
    lockd_each (const struct sched_party, holder, &device->turns.holders, turn.holder) {
        if (holder->gang != party->gang)
            at = older = sched_max(older, older_at(party, holder, now));
    }
    if (missing > 0)
        at = sched_max(at, now + LOOK_AGAIN + (uint64_t)(missing / rise_of(device)));
    return sched_max(at, pays_at(party, now));
}

bool sched_share_goes_first(const struct sched_party *party, uint64_t now)
{
    return sched_party_is_young(party, now) || sched_share_again_at(party, now) <= now;
}

static double measure_begun(const struct sched_device *device)
{
    return CHANGE * (double)sched_device_switch(device);
}

/* It had more than is due, and the account does not hold what is asked for that. One for which others
 * stopped is not sent back. */
static bool is_in_debt(const struct sched_party *party)
{
    const struct sched_device *device = party->device;

    return party->share.first && asked_for(user_had(party, device->share.at)) >
                                     device->share.spare + measure_begun(device);
}

/* While one of the others has a turn it is only the floor that counts. What its user had does not:
 * a small one may have a turn at any time, and the party would wait for ever. */
static bool waits_for_floor(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    const struct sched_device_share *share =
        look_at_holders(party->device, party->device->share.at);

    /* one that only runs beside others is not served yet: else it would make its place free */
    if (!party->share.first || share->batch_queued + share->batch_beside == 0)
        return false;
    if (share->batch_held)
        return share->spare + measure_begun(device) < 0 && is_kept_off(device, share->at);
    return is_in_debt(party);
}

enum sched_turn_now sched_share_now(const struct sched_party *party)
{
    if (waits_for_floor(party))
        return SCHED_TURN_WAITS;
    return is_in_debt(party) ? SCHED_TURN_SHARES : SCHED_TURN_DUE;
}

/* --- the beginning and the end --- */

void sched_share_open(struct sched_device *device, uint64_t now)
{
    device->share.generation = UINT64_MAX;
    device->share.at = now; /* nothing is saved up yet */
    device->fair.level = LEVEL_START;
    device->fair.round = ROUND_START;
}

void sched_share_join(struct sched_party *party)
{
    party->bursts.quiet_at = party->bursts.last = LOCKD_NEVER;
}

void sched_share_merge(struct sched_party *to, const struct sched_party *from)
{
    to->fair.virtual_ns = sched_max(to->fair.virtual_ns, from->fair.virtual_ns);
    if (to->member_count != 0)
        return;
    to->fair.level_then = from->fair.level_then;
    to->bursts = from->bursts;
    to->share.all = from->share.all;
}

void sched_share_arrive(struct sched_party *party, const struct sched_party *left)
{
    party->bursts = left->bursts;
    party->share.all = left->share.all;
    party->fair.level_then = party->device->fair.level;
}

double sched_share_used(const struct sched_party *party, uint64_t now)
{
    return smaller_of(faded_part(&party->share.all, now), 1);
}

bool sched_share_is_first(const struct sched_party *party)
{
    return party->share.first;
}

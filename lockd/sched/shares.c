/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.c: for how long the others let an interactive party go first. Owns the accounts of
 * users, and a device's account of the time that interactive parties kept from the others.
 *
 * An interactive party (interactive.c) is served at once, and may end the turn of a party that
 * is not, within two bounds:
 *
 * - the *floor*: of the time in which both want the device, the others keep at least `floor` of
 *   their fair share. The device's account `spare` rises while one of them runs, falls while
 *   they are held off (the switches to and fro are part of that), and stands still otherwise. An
 *   interactive party that comes while it is below zero waits until it is not any more, so the
 *   wait is as long as what is owed: a moment after one burst too many, never a whole turn. Where
 *   the next one of them would be served if there were no interactive parties, they are held off,
 *   although a small one may run all the time beside all others.
 * - the *fair share* of its user, then its own: what they had so is remembered with a half-life.
 *   Up to the fair share nothing more is asked. Beyond it the account must hold ever more, so a
 *   user with a great many bursts gets what the others leave, and takes nothing from another
 *   user's interactive programs, which come before it until then. The party's ordinary turns count
 *   against what the floor leaves.
 *
 * A party that is new has shown nothing. It goes in turn, but ends the turn of a party that began
 * to compute before it, within the same bounds: most new programs are short. Of two that begin
 * together neither ends the other's turn.
 *
 * Fair shares are those of the parties that want the device now, by weight; of users, by the mean
 * weight of their parties. All is O(1), but for a look at the holders when they changed, and, where
 * one of the others has a turn, at holders and queue while an interactive party goes first.
 */
#include "lockd/sched/shares.h"

#include "lockd/sched/interactive.h"
#include "lockd/sched/quantum.h"
#include "lockd/sched/device.h"

#define HALF_LIFE (60000 * NS_PER_MS)
#define BEYOND    4                  /* by this part of a fair share one may exceed it */
#define WORKED    (8000 * NS_PER_MS) /* one that is only tried after so much gives way */
#define TOGETHER  (20 * NS_PER_MS)   /* two that begin to compute within this time */
#define BEGUN     2 /* switches; one for which others stopped is not sent back for less */

/* --- accounts that fade --- */

static double smaller_of(double a, double b)
{
    return a < b ? a : b;
}

static double larger_of(double a, double b)
{
    return a > b ? a : b;
}

/* 2^-x for x from 0 to 1, within 1e-4. */
static double half_to_the(double x)
{
    return 1 - x * (0.6931 - x * (0.2400 - x * (0.0535 - x * 0.0073)));
}

static uint64_t read_faded(const struct sched_faded *account, uint64_t now)
{
    const uint64_t age = sched_less(now, account->at), halves = age / HALF_LIFE;

    if (halves >= 64)
        return 0;
    return (uint64_t)((double)(account->ns >> halves) *
                      half_to_the((double)(age % HALF_LIFE) / (double)HALF_LIFE));
}

static void fade_add(struct sched_faded *account, uint64_t ns, uint64_t now)
{
    account->ns = read_faded(account, now) + ns;
    account->at = now;
}

/* As a part of the time: one that always had the device has 1. */
static double faded_part(const struct sched_faded *account, uint64_t now)
{
    return (double)read_faded(account, now) * 0.6931 / (double)HALF_LIFE;
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
    const bool queued = party->wait.queued_of == &party->device->waiting.queue;

    count_wanting(party, -1);
    share->batch_queued = share->batch_beside = share->first = false;
    share->user = party->wanting.user;
    share->weight = party->weight;
    if (!party->wanting.wants)
        return;
    share->first = party->bursts.first;
    share->batch_queued = queued && !share->first && party->turn.skipped == 0;
    share->batch_beside = !queued && party->turn.backfilled && !share->first;
    count_wanting(party, 1);
}

/* It goes first: it is known to be interactive, or is new and ended another one's turn. */
static bool went_first(const struct sched_party *party)
{
    return party->share.first || (party->turn.interrupts && sched_party_is_new(party));
}

void sched_share_ran(struct sched_party *party, uint64_t ns, bool contended, uint64_t now)
{
    party->fair.level_then = party->device->fair.level;
    if (party->gang->wanting != 0) /* else it keeps a place that nobody wants */
        party->bursts.now += ns;
    if (!contended)
        return;
    if (party->share.first || sched_party_is_known(party))
        fade_add(&party->share.had, ns,
                 now); /* its ordinary turns, too: else both would add up */
    fade_add(&party->share.all, ns, now);
    if (party->wanting.user != NULL && went_first(party))
        fade_add(&party->wanting.user->had, ns, now);
}

/* The part of the device that is due to interactive parties together: by weight, and no more than
 * by users. */
static double due_to_interactive(const struct sched_device *device)
{
    double first = 0;

    for (const struct lockd_list *at = device->wanting.users.next; at != &device->wanting.users;
         at = at->next) {
        const struct sched_user *user = lockd_entry(at, struct sched_user, of_device);

        first += user->first_weights != 0 ? sched_user_share(device, user) : 0;
    }
    if (device->wanting.weights == 0)
        return 1;
    return smaller_of((double)device->share.first_weights / (double)device->wanting.weights,
                      first);
}

/* What it had, and what its user's interactive programs had, as parts of what is due to them;
 * the larger. One that is known to be interactive, and takes ordinary turns at other times, has those,
 * too: what the floor leaves is due to all of that. One that is only tried has to be seen first. */
static double had_of_due(const struct sched_party *party, uint64_t now)
{
    const struct sched_device *device = party->device;
    const struct sched_user *user = party->wanting.user;
    const double leaves = larger_of(1 - sched_device_keeps(device), 0.01),
                 whole = faded_part(&party->share.all, now) / leaves,
                 mine = (double)sched_max(party->share.weight, 1);
    double part = faded_part(&party->share.had, now), share;

    if (user == NULL || user->weights == 0) {
        part *= (double)device->wanting.weights / mine;
        return sched_party_is_known(party) ? larger_of(part, whole) : part;
    }
    share = sched_user_share(device, user);
    part *= (double)user->weights / mine / share;
    if (sched_party_is_known(party))
        part = larger_of(part, whole);
    return larger_of(part, faded_part(&user->had, now) / share);
}

/* --- the device's account --- */

/* Until when one that has the device as an interactive party goes on being one. Its burst gets no
 * longer while it does not run; when it begins to, the holders are looked at again. */
static uint64_t goes_until(const struct sched_party *party, uint64_t now)
{
    return party->books.running_members == 0 ? LOCKD_NEVER : sched_party_shows_at(party, now);
}

static bool is_going(const struct sched_party *party, uint64_t now)
{
    return went_first(party) && sched_party_is_interactive(party, now);
}

/* The holders, as far as it matters here. */
static const struct sched_device_share *look_at_holders(struct sched_device *device,
                                                        uint64_t now)
{
    struct sched_device_share *share = &device->share;

    if (share->generation == device->turns.generation)
        return share;
    share->generation = device->turns.generation;
    share->batch_held = share->batch_runs = false;
    share->going = share->coming = NULL;
    lockd_list_each (at, &device->turns.holders) {
        const struct sched_party *party = sched_party_of(at, turn.holder);

        if (sched_party_is_background(party))
            continue;
        if (is_going(party, now)) {
            if (share->going == NULL || goes_until(party, now) >= goes_until(share->going, now))
                share->going = party;
        } else if (!party->turn.backfilled) {
            share->batch_held = true;
            share->batch_runs = share->batch_runs || party->books.running_members != 0;
            share->coming = party;
        }
    }
    return share;
}

/* Would the first of the others that wait be served now if there were no interactive parties? It
 * has to fit beside those of the others whose turn is not over: the rest would give way to it. */
static bool is_kept_off(const struct sched_device *device, uint64_t now)
{
    const struct sched_party *waits = NULL;
    uint64_t need = 0;

    for (const struct sched_node *at = sched_order_first(&device->waiting.queue);
         at != NULL && waits == NULL; at = sched_order_next(at)) {
        const struct sched_party *party = sched_party_of(at, wait.queued);

        waits = party->share.batch_queued ? party : NULL;
    }
    if (waits == NULL || device->sched->settings.exclusive)
        return false;
    for (const struct lockd_list *at = device->turns.holders.next; at != &device->turns.holders;
         at = at->next) {
        const struct sched_party *party = sched_party_of(at, turn.holder);

        if (!sched_party_is_background(party) && !party->turn.backfilled &&
            now < party->turn.until && !is_going(party, now))
            need += party->books.need;
    }
    need += waits->books.need + device->books.lost - waits->books.lost;
    return need <= device->space.capacity;
}

static void count_for(struct sched_device *device, uint64_t ns, bool held_off)
{
    struct sched_device_share *share = &device->share;
    const double keeps = sched_device_keeps(device), part = (double)ns;

    if (held_off)
        device->turns.held_off_ns += ns;
    share->spare += held_off ? -part * keeps : part * (1 - keeps);
    share->spare = smaller_of(share->spare, (double)SPARE_MOST);
    share->spare = larger_of(share->spare, -(double)DEBT_MOST);
}

/* Held off are the others while an interactive party has the device or comes to it, and until the
 * one of them that comes runs; one that is slow to come is so for reasons of its own. */
void sched_share_count(struct sched_device *device, uint64_t now)
{
    struct sched_device_share *share = &device->share;
    const uint64_t since = share->at, until = sched_clamp(share->off_until, since, now);

    share->at = now;
    if (now <= since)
        return;
    if (share->held_off && until > since)
        count_for(device, until - since, true);
    if (!share->held_off)
        count_for(device, now - since, false);
    else if (now > until)
        count_for(device, now - until, false);
}

void sched_share_settle(struct sched_device *device, uint64_t now)
{
    struct sched_device_share *share = &device->share;
    const struct sched_party *cleared = device->cleared.party;
    const bool leases = device->turns.leases, comes = cleared != NULL && went_first(cleared);
    bool ends, kept;

    sched_share_count(device, now);
    look_at_holders(device, now);
    if (share->first_weights != 0)
        share->due = due_to_interactive(device);
    share->off_until = LOCKD_NEVER;
    /* an interactive one has had its turn, and has not stopped yet */
    ends = share->held_off && device->books.stopping_parties > device->books.stuck_parties;
    kept = leases && share->batch_held && (share->going != NULL || comes || ends) &&
           is_kept_off(device, now);
    if ((!leases && share->batch_runs) || (share->batch_queued == 0 && !share->batch_held)) {
        share->held_off = false;
    } else if (leases && share->going != NULL && (kept || !share->batch_runs)) {
        share->held_off = true;
        if (sched_party_is_interactive(share->going, now))
            share->off_until = goes_until(share->going, now);
        else
            share->off_until = now;
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

/* What must be in the account before it may go first, when it had so much of what is due. */
static double asked_for(double had)
{
    return had <= 1 ? 0 : (had - 1) * BEYOND * (double)SPARE_MOST;
}

/* When both the account is as full as is asked of it, and what it had has faded so far that no more
 * than that is asked. */
static uint64_t pays_at(const struct sched_party *party, uint64_t now)
{
    const double had = had_of_due(party, now), has = party->device->share.spare,
                 most = 0.9 * (double)SPARE_MOST, most_had = 1 + 0.9 / BEYOND,
                 asked = smaller_of(asked_for(had), most);
    const uint64_t fades =
        had <= most_had ? 0 : (uint64_t)((had / most_had - 1) * (double)HALF_LIFE);
    const uint64_t fills =
        asked <= has ? 0 : (uint64_t)((asked - has) / (1 - sched_device_keeps(party->device)));

    return fades == 0 && fills == 0 ? now : now + LOOK_AGAIN + sched_max(fades, fills);
}

/* A new program ends the turn of a holder that has begun to compute before it came. A program of which
 * nothing is known is served soon, from the first minute of both on; two that begin together do not
 * end each other's turns. It has to have stopped, and to have come to run whenever it was its turn. A
 * program that comes back to a new daemon is not new. */
static uint64_t new_at(const struct sched_party *head, const struct sched_party *holder,
                       uint64_t now)
{
    if (head->bursts.began <= holder->bursts.began + TOGETHER || head->turn.skipped != 0 ||
        sched_member_of(head->members.next, of_party)->sent.first_seq != 0 ||
        head->books.running_members != 0 || !sched_party_is_interactive(head, now))
        return LOCKD_NEVER;
    return sched_party_long_at(holder, now);
}

/* A holder that is only tried, after it has worked for long without being known to be interactive,
 * as a training has, gives way to a head that is known to be. */
uint64_t sched_share_ahead_at(const struct sched_party *head, const struct sched_party *holder,
                              uint64_t now)
{
    const bool known = sched_party_class(head, now) == GS_CLASS_INTERACTIVE &&
                       sched_party_class(holder, now) != GS_CLASS_INTERACTIVE &&
                       holder->bursts.pile > WORKED;
    const uint64_t lasts = known ? now : sched_party_lasts_until(holder, now),
                   at = sched_max(lasts, pays_at(head, now));

    return sched_party_is_new(head) ? sched_max(at, new_at(head, holder, now)) : at;
}

static double measure_begun(const struct sched_device *device)
{
    return BEGUN * (double)sched_device_switch(device);
}

/* It had more than is due, and the account does not hold what is asked for that. One for which others
 * stopped is not sent back. */
static bool is_in_debt(const struct sched_party *party)
{
    const struct sched_device *device = party->device;

    return party->share.first && asked_for(had_of_due(party, device->share.at)) >
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
}

void sched_share_join(struct sched_party *party)
{
    party->bursts.usual = party->bursts.quiet_at = LOCKD_NEVER;
}

void sched_share_merge(struct sched_party *to, const struct sched_party *from)
{
    to->fair.virtual_ns = sched_max(to->fair.virtual_ns, from->fair.virtual_ns);
    if (to->member_count != 0)
        return;
    to->fair.level_then = from->fair.level_then;
    to->bursts = from->bursts;
    to->share.had = from->share.had;
    to->share.all = from->share.all;
}

void sched_share_leave(const struct sched_party *party, struct sched_client_left *left)
{
    left->bursts = party->bursts;
    left->had = party->share.had;
    left->all = party->share.all;
}

void sched_share_arrive(struct sched_party *party, const struct sched_client_left *left)
{
    party->bursts = left->bursts;
    party->share.had = left->had;
    party->share.all = left->all;
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

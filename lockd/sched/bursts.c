/* SPDX-License-Identifier: Apache-2.0
 *
 * bursts.c: for how long a party has run since it last rested (its age), and for how long it may
 * idle. Owns what is known of a party's bursts, and accounts that fade. All is O(1), but for a look
 * for the account of a user whose party does not want the device.
 */
#include "lockd/sched/bursts.h"

#include "lockd/sched/quantum.h"

#define VAIN       4 /* times in a row that it wanted to run and did not */
#define IDLE_STEP  10
#define IDLE_PART  8
#define GAP_FORGET 64

/* --- accounts that fade --- */

/* 2^-x for x from 0 to 1, within 1e-4. */
static double half_to_the(double x)
{
    return 1 - x * (0.6931 - x * (0.2400 - x * (0.0535 - x * 0.0073)));
}

uint64_t sched_faded_read(const struct sched_faded *account, uint64_t now)
{
    const uint64_t age = sched_less(now, account->at), halves = age / HALF_LIFE;

    if (halves >= 64)
        return 0;
    return (uint64_t)((double)(account->ns >> halves) *
                      half_to_the((double)(age % HALF_LIFE) / (double)HALF_LIFE));
}

void sched_faded_add(struct sched_faded *account, uint64_t ns, uint64_t now)
{
    account->ns = sched_faded_read(account, now) + ns;
    account->at = now;
}

/* --- bursts --- */

/* A party that goes first may idle for less: by the gaps inside its bursts. */
uint64_t sched_party_idle(const struct sched_party *party)
{
    const uint64_t idle = sched_device_idle(party->device);

    if (party->device->sched->settings.idle_ns != LOCKD_AUTO || party->bursts.idle == 0 ||
        !party->bursts.first)
        return idle;
    return sched_clamp(party->bursts.idle, IDLE_MIN, idle);
}

/* The party has had nothing to do for as long as it may idle; `at`: since when. Work that comes
 * during a wait makes a burst longer, so a long burst that waited does not show that the party
 * has long bursts. */
static void burst_over(struct sched_party *party, uint64_t at)
{
    struct sched_party_bursts *bursts = &party->bursts;
    const uint64_t waited = sched_less(sched_less(at, bursts->began), bursts->age);

    if (bursts->age != 0) {
        if (bursts->age <= YOUNG || waited <= CHANGE * sched_device_switch(party->device))
            bursts->brief = bursts->age <= YOUNG;
        bursts->last = bursts->age;
        bursts->vain = 0;
    }
    bursts->age = 0;
    bursts->cut = bursts->went = false;
    bursts->rested = true;
}

/* A party that has just stopped may be between two calls: whether it has anything to do shows
 * later. */
void sched_burst_ended(struct sched_party *party, bool runs, uint64_t now)
{
    const uint64_t idle = sched_party_idle(party);

    if (party->bursts.age == 0 && party->bursts.vain < VAIN)
        party->bursts.vain++;
    party->bursts.quiet_at = runs ? LOCKD_NEVER : now;
    party->bursts.rest_at = runs ? sched_less(now, idle) : now;
    if (runs)
        burst_over(party, party->bursts.rest_at);
}

/* The idle time follows the gaps inside bursts. Rests shorter than the full time, two in a row,
 * were such gaps, and ended the turn too soon. */
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

    if (bursts->quiet_at != LOCKD_NEVER && now - bursts->quiet_at >= sched_party_idle(party))
        burst_over(party, bursts->quiet_at);
    bursts->quiet_at = LOCKD_NEVER;
    if (bursts->age == 0)
        bursts->began = now;
    if (bursts->rest_at != 0)
        learn_idle(party, sched_less(now, bursts->rest_at));
    bursts->rest_at = 0;
}

/* The party was between two calls when its turn was cut, so whether it comes back shows within the
 * time that it may idle. To let another party go on costs two switches, so the place is kept for no
 * more time than that. */
uint64_t sched_device_back_at(const struct sched_device *device)
{
    const struct sched_party *back = device->waiting.back;
    uint64_t until;

    if (back == NULL || !back->turn.interrupted || back->turn.held ||
        back->wait.queued.of != NULL || back->bursts.quiet_at == LOCKD_NEVER)
        return LOCKD_NEVER;
    until = back->bursts.quiet_at +
            sched_min(sched_party_idle(back), CHANGE * sched_device_switch(device));
    return device->share.at < until ? until : LOCKD_NEVER;
}

/* Of its user; also while it is about to queue, so that it does not count as wanting the device. */
static const struct sched_user *account_of(const struct sched_party *party)
{
    const uint32_t id = sched_party_first(party)->client->user;

    if (party->wanting.user != NULL)
        return party->wanting.user;
    lockd_each (const struct sched_user, user, &party->device->wanting.users, of_device) {
        if (user->id == id)
            return user;
    }
    return NULL;
}

bool sched_party_is_unproven(const struct sched_party *party)
{
    const struct sched_user *user;

    if (party->bursts.last != LOCKD_NEVER || sched_gang_class(party->gang) != GS_CLASS_AUTO)
        return false;
    user = account_of(party);
    return user != NULL && user->weights != party->device->wanting.weights;
}

uint64_t sched_party_news(const struct sched_party *party, uint64_t now)
{
    return sched_party_is_unproven(party) ? sched_faded_read(&account_of(party)->fresh, now)
                                          : 0;
}

uint64_t sched_party_age(const struct sched_party *party, uint64_t now)
{
    const bool runs = party->books.running_members != 0;
    const uint64_t age =
        party->bursts.age + (runs ? sched_less(now, party->time.counted_at) : 0);

    return sched_max(age, sched_party_news(party, now));
}

/* Whoever sets a quantum means by it how long others wait for a program: a new one waits, too. */
uint64_t sched_party_young_most(const struct sched_party *party)
{
    const uint64_t quantum = party->device->sched->settings.quantum_ns;

    if (quantum == LOCKD_AUTO)
        return YOUNG;
    return party->bursts.last == LOCKD_NEVER ? 0 : sched_min(quantum / 2, YOUNG);
}

bool sched_party_comes_to_run(const struct sched_party *party)
{
    return party->bursts.vain < VAIN && party->turn.skipped == 0;
}

bool sched_party_is_young(const struct sched_party *party, uint64_t now)
{
    const enum gs_wire_class class = sched_gang_class(party->gang);

    if (class != GS_CLASS_AUTO)
        return class == GS_CLASS_INTERACTIVE;
    return sched_party_comes_to_run(party) &&
           sched_party_age(party, now) < sched_party_young_most(party);
}

uint64_t sched_party_undisturbed(const struct sched_party *party)
{
    return party->bursts.last <= YOUNG ? YOUNG : 0;
}

enum gs_wire_class sched_party_class(const struct sched_party *party, uint64_t now)
{
    const enum gs_wire_class class = sched_gang_class(party->gang);

    if (class != GS_CLASS_AUTO)
        return class;
    return sched_party_undisturbed(party) != 0 && sched_party_is_young(party, now)
               ? GS_CLASS_INTERACTIVE
               : GS_CLASS_BATCH;
}

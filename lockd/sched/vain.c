/* SPDX-License-Identifier: Apache-2.0
 *
 * vain.c: the time of a device in which others wait and nothing runs, since a turn has not come to
 * run, or to begin. It is had by the user whose turn that is, or by the user whose program has yet to
 * stop, or to leave the memory that was asked for when the turn began. Until programs of other users
 * have had as much, run or not, the user's programs have no turn for which these would have to stop.
 * So the user's share bounds what it takes from others, whatever its programs do. Owns struct
 * sched_had. O(1), but for what is to stop.
 */
#include "lockd/sched/vain.h"

#include "lockd/sched/denial.h"
#include "lockd/sched/device.h"
#include "lockd/sched/quantum.h"

#define VAIN_MOST   6 /* doublings of the wait after turns in vain */
#define BEGINS_LATE 8 /* a turn begins late after one part in so many of a quantum */

static void count_had(struct sched_had *had, uint64_t ns, uint32_t plan)
{
    had->ns += had->plan != plan ? had->fresh : 0;
    had->fresh = ns + (had->plan != plan ? 0 : had->fresh);
    had->plan = plan;
}

static uint64_t had_before(const struct sched_had *had, const struct sched_device *device)
{
    return had->ns + (had->plan != device->turns.plans ? had->fresh : 0);
}

static uint64_t had_by_others(const struct sched_device *device, const struct sched_user *user)
{
    return device->turns.had.ns + device->turns.had.fresh - user->all.ns - user->all.fresh;
}

void sched_vain_had(struct sched_device *device, struct sched_user *user, uint64_t ns)
{
    count_had(&device->turns.had, ns, device->turns.plans);
    if (user != NULL)
        count_had(&user->all, ns, device->turns.plans);
}

/* What others have had must reach that again before it is the user's turn. */
static void pay_for(struct sched_device *device, struct sched_user *user, uint64_t ns)
{
    const double share = user->weights == 0 ? 0.5 : sched_user_share(device, user);

    user->pays_until = sched_max(user->pays_until, had_by_others(device, user)) +
                       (uint64_t)((double)ns * (1 - share) / share);
}

/* The user whose program has yet to leave memory that was asked for when the turn began; NULL: no
 * program of another user is in the way. */
static struct sched_user *kept_by(const struct sched_party *party, uint64_t now)
{
    const struct sched_member *own = sched_party_first(party);
    bool lacks = false;

    lockd_each (const struct sched_member, member, &party->members, of_party)
        lacks |= member->budget < sched_min(member->books.asked, sched_need(member));
    if (!lacks)
        return NULL;
    lockd_each (const struct sched_member, member, &party->device->books.stopping,
                books.stopping) {
        if (sched_denial_is_other(member, own))
            return sched_user_of(party->device, member->client->user, now);
    }
    return NULL;
}

/* The user whose program has run on for longest after it was told to stop; NULL: none does. */
static struct sched_user *stops_late(struct sched_device *device, uint64_t now)
{
    const struct sched_member *first = NULL;

    lockd_each (const struct sched_member, member, &device->books.stopping, books.stopping) {
        if (sched_party_runs_on(member->party) &&
            (first == NULL || member->books.leaves < first->books.leaves))
            first = member;
    }
    return first != NULL ? sched_user_of(device, first->client->user, now) : NULL;
}

void sched_vain_count(struct sched_device *device, uint64_t now)
{
    const uint64_t ns = sched_less(now, device->turns.vain_at);
    struct sched_user *late;

    device->turns.vain_at = now;
    if (ns == 0 || !device->turns.waiters || !device->turns.leases)
        return;
    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
        struct sched_user *user;

        if (party->turn.started != 0 || party->turn.backfilled || !party->gang->runs)
            continue;
        user = kept_by(party, now);
        if (user == NULL) {
            party->turn.vain += ns;
            user = party->wanting.user;
        }
        sched_vain_had(device, user, ns);
        if (user != NULL)
            pay_for(device, user, ns);
        return;
    }
    late = lockd_list_empty(&device->turns.holders) ? stops_late(device, now) : NULL;
    if (late != NULL) {
        sched_vain_had(device, late, ns);
        pay_for(device, late, ns);
    }
}

void sched_vain_ended(struct sched_party *party, uint64_t now)
{
    sched_vain_count(party->device, now);
    if (party->wanting.user != NULL)
        pay_for(party->device, party->wanting.user,
                sched_min(party->turn.vain, party->time.ran));
}

bool sched_vain_was_late(const struct sched_party *party)
{
    return party->device->measure.several &&
           party->turn.vain > sched_device_quantum(party->device) / BEGINS_LATE;
}

uint64_t sched_vain_owed(const struct sched_party *party, bool *own)
{
    const struct sched_device *device = party->device;
    const struct sched_user *user = party->wanting.user;
    const uint64_t had = had_before(&device->turns.had, device),
                   owed = sched_less(party->turn.pays_until, had);

    if (device->wanting.weights == party->wanting.weight) /* nobody else wants the device */
        return 0;
    *own = owed != 0;
    if (user == NULL || user->weights == device->wanting.weights)
        return owed;
    return sched_max(
        owed, sched_less(user->pays_until, had - had_before(&user->all, device) +
                                               sched_device_quantum(device) / BEGINS_LATE));
}

void sched_vain_note(struct sched_party *party, uint64_t now)
{
    sched_vain_count(party->device, now);
    party->turn.pays_until = party->device->turns.had.ns + party->device->turns.had.fresh +
                             (party->turn.vain << sched_min(party->turn.skipped, VAIN_MOST));
    party->turn.skipped++;
}

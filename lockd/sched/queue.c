/* SPDX-License-Identifier: Apache-2.0
 *
 * queue.c: the parties that wait for a device, their order, and the next of them. The policy
 * makes the order. A party that cannot stop before it gets memory goes before all others, and a
 * party that can never fit waits apart. No state of its own.
 */
#include "lockd/sched/room.h"

#define BACKGROUND_KEY (UINT64_MAX - 1) /* behind all others, whatever the policy */

void sched_queue_drop(struct sched_party *party)
{
    if (party->wait.queued.of == NULL)
        return;
    sched_order_remove(&party->wait.queued);
    if (party->device->cleared.party == party)
        party->device->cleared.party = NULL;
    sched_wanting_note(party);
}

/* Does the party still wait for which its last turn was ended? That party was the head then:
 * parties before it now have come since, and are no reason to wait longer. */
static bool still_yields(const struct sched_party *party)
{
    const struct sched_party_wait *wait = &party->wait;

    if (!wait->yields)
        return false;
    sched_each_queued (other, &party->device->waiting.queue) {
        const struct sched_node *at = &other->wait.queued;

        if (at->key > wait->behind_key ||
            (at->key == wait->behind_key && at->number > wait->behind_number))
            return false;
        if (other->wait.arrival == wait->behind_arrival)
            return true;
    }
    return false;
}

static void note_again(struct sched_party *party, uint64_t now)
{
    const uint64_t at = sched_policy_of(party->device)->moves_at(party, now);

    if (at > now) /* an estimate may move on as the time does */
        sched_sooner(&party->device->waiting.again_at, sched_max(at, now + LOOK_PAUSE));
}

void sched_queue_enter(struct sched_party *party, uint64_t now)
{
    struct sched_device *device = party->device;
    struct sched_order *of = sched_party_hopeless(party) || party->gang->forming.waits
                                 ? &device->waiting.apart
                                 : &device->waiting.queue;
    const bool first = sched_party_blocked(party);
    const struct sched_policy *policy = sched_policy_of(device);
    struct sched_node *at = &party->wait.queued;
    bool anew;

    if (party->wait.queued.of == of && party->wait.first == first)
        return;
    if (policy->anew(party))
        party->wait.keeps_place = party->turn.interrupted = false;
    anew = !party->wait.keeps_place && party->wait.queued.of == NULL;
    if (anew)
        party->wait.arrival = ++device->clock;
    sched_queue_drop(party);
    sched_books_ran(party, now);
    party->wait.first = first;
    at->key = at->number = 0;
    if (!first) { /* by the policy, but behind the party that its last turn was ended for */
        party->wait.yields = still_yields(party);
        at->key = policy->place(party);
        if (anew && policy->number != NULL)
            party->wait.number = policy->number(party);
        at->number = policy->number != NULL ? party->wait.number : party->wait.arrival;
        if (sched_party_is_background(party)) { /* what they had is not counted */
            at->key = BACKGROUND_KEY;
            at->number = party->wait.arrival;
        }
        if (party->wait.yields && at->key <= party->wait.behind_key) {
            at->key = party->wait.behind_key;
            at->number = sched_max(at->number, party->wait.behind_number + 1);
        }
    }
    sched_order_insert(of, at);
    note_again(party, now);
    sched_wanting_note(party);
    sched_books_party(party, now);
}

void sched_queue_leave(struct sched_party *party, uint64_t now)
{
    const struct sched_policy *policy = sched_policy_of(party->device);

    if (party->wait.queued.of == NULL)
        return;
    sched_books_ran(party, now);
    if (party->turn.interrupts && party->device->cleared.party == party &&
        policy->gave_up != NULL)
        policy->gave_up(party);
    sched_queue_drop(party);
    sched_books_party(party, now);
}

/* The bytes that split gangs keep from a party of another split gang. */
static uint64_t in_vain(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    uint64_t bytes = 0;

    if (device->books.stuck_parties == 0 || sched_party_busy(party) ||
        !sched_gang_is_split(party->gang))
        return 0;
    lockd_each (const struct sched_party, other, &device->parties, of_device) {
        if (other != party && other->books.counted_stuck && sched_gang_is_split(other->gang))
            bytes += other->books.lost;
    }
    return bytes;
}

uint64_t sched_queue_lost(const struct sched_party *party)
{
    return sched_less(party->device->books.lost - party->books.lost - in_vain(party),
                      sched_denial_passed(party).lost);
}

bool sched_queue_has_room(const struct sched_party *head)
{
    const struct sched_device *device = head->device;
    const uint64_t others = device->books.need_busy - head->books.need_busy - in_vain(head);

    return sched_less(others, sched_denial_passed(head).busy) + sched_queue_takes(head) <=
           device->space.capacity;
}

/* The bytes of the device that stuck parties leave. */
static uint64_t room_for(const struct sched_party *party)
{
    return sched_less(party->device->space.capacity, sched_queue_lost(party));
}

/* With exclusive turns a turn takes all there is: stuck parties cannot be kept off. The same if
 * the party gets its place beside a party that waits for it. */
uint64_t sched_queue_takes(const struct sched_party *party)
{
    const struct sched_device *device = party->device;

    if (device->sched->settings.exclusive || in_vain(party) != 0)
        return sched_max(sched_min(party->books.demand, device->space.capacity),
                         room_for(party));
    return party->books.need;
}

/* A party that was interrupted may come back for the place before it. */
static bool is_place_of_another(const struct sched_party *head)
{
    const struct sched_device *device = head->device;
    const struct sched_party *back = device->waiting.back;

    return !head->wait.first && !sched_share_is_first(head) &&
           sched_policy_of(device)->back_until(device) != LOCKD_NEVER &&
           back->wait.queued.key < head->wait.queued.key;
}

/* It does not fit beside what programs of its own user may have that should have left: other users
 * do not wait for that. */
static bool waits_for_kin(const struct sched_party *party)
{
    return sched_queue_takes(party) + sched_denial_kin_bytes(party) >
           party->device->space.capacity;
}

/* Programs for which it waits would have to stop for it: others, where it pays for its own turns; those
 * of other users, where it pays for its user's. */
static bool stops_others(const struct sched_party *head, bool own)
{
    lockd_each (const struct sched_party, party, &head->device->turns.holders, turn.holder) {
        if (own || party->wanting.user != head->wanting.user)
            return true;
    }
    return false;
}

/* Parties that do not fit beside stuck parties keep their places in front of the head. A stuck
 * party would only repeat its turn, unless others of its gang can end what it waits for. A
 * party that can never fit has its turn only when no other has work. Of those that wait until other
 * users had as much, the one that waits for least passes none but programs of its own user. */
struct sched_party *sched_queue_head(const struct sched_device *device)
{
    struct sched_party *first = NULL, *waits = NULL, *owes = NULL, *pays = NULL, *paying = NULL;
    uint64_t least = 0, owed;
    bool own = false;

    sched_each_queued (party, &device->waiting.queue) {
        enum sched_turn_now now;

        first = first != NULL ? first : party;
        owed = party->wait.first ? 0 : sched_vain_owed(party, &own);
        if (owed != 0) {
            if ((pays == NULL || owed < least) && !stops_others(party, own)) {
                pays = party;
                least = owed;
            }
            paying = paying != NULL ? paying : party;
            continue;
        }
        if (paying != NULL && sched_party_is_background(party))
            break;
        now = party->wait.first ? SCHED_TURN_DUE : sched_share_now(party);
        if (owes != NULL && !sched_share_is_first(party))
            return owes; /* only parties that go first may pass a party in debt */
        if (now == SCHED_TURN_WAITS) {
            waits = waits != NULL ? waits : party;
            continue;
        }
        if (sched_queue_takes(party) > room_for(party) ||
            (party != first && waits == NULL && owes == NULL && party->books.counted_stuck &&
             party->gang->client_count < 2) ||
            waits_for_kin(party))
            continue;
        if (now != SCHED_TURN_SHARES)
            return is_place_of_another(party) ? NULL : party;
        owes = owes != NULL ? owes : party;
    }
    if (waits != NULL || owes != NULL) /* nobody can be served instead */
        return waits != NULL ? waits : owes;
    if (paying != NULL)
        return pays == NULL && sched_queue_has_room(paying) ? paying : pays;
    if (first != NULL || device->turns.holder_count != 0)
        return first;
    sched_each_queued (party, &device->waiting.apart) {
        if (!party->gang->forming.waits)
            return party;
    }
    return NULL;
}

/* The party has its turn: parties that it came before return to the places that they have by
 * themselves. */
void sched_queue_served(struct sched_party *party, uint64_t now)
{
    sched_each_queued (other, &party->device->waiting.queue) {
        if (!other->wait.yields || other->wait.behind_arrival != party->wait.arrival)
            continue;
        other->wait.yields = false;
        sched_queue_renew(other, now);
    }
}

void sched_queue_renew(struct sched_party *party, uint64_t now)
{
    if (party->wait.queued.of == NULL)
        return;
    party->wait.keeps_place = true; /* among equals */
    sched_queue_drop(party);
    sched_books_party(party, now);
    sched_agenda_settle(party);
}

void sched_queue_look_again(struct sched_device *device, uint64_t now)
{
    if (now < device->waiting.again_at)
        return;
    device->waiting.again_at = LOCKD_NEVER;
    sched_each_queued (party, &device->waiting.queue) {
        if (sched_policy_of(device)->moves_at(party, now) > now) {
            note_again(party, now);
            continue;
        }
        device->turns.generation++;      /* a holder may have to give way now */
        party->turn.interrupted = false; /* the turn was cut for a party that was before it
                                            then */
        sched_queue_renew(party, now);
    }
}

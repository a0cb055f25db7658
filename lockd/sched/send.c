/* SPDX-License-Identifier: Apache-2.0
 *
 * send.c: targets. Nothing is sent unless it changes something that matters, and at most
 * TARGETS_IN_FLIGHT are on the way to a client that does not answer: its next report touches it
 * and what was decided meanwhile is sent then.
 */
#include "lockd/sched/send.h"

#include "lockd/sched/agenda.h"
#include "lockd/sched/books.h"
#include "lockd/sched/capacity.h"
#include "lockd/sched/quantum.h"

#include <string.h>

#define EXACT_AFTER (1000 * NS_PER_MS)

void sched_send_echo(struct sched_member *member)
{
    uint32_t drop = 0;

    while (drop + 1 < member->outstanding_count &&
           member->outstanding[drop].seq < member->echoed)
        drop++;
    member->outstanding_count -= drop;
    for (uint32_t i = 0; i < member->outstanding_count; i++)
        member->outstanding[i] = member->outstanding[i + drop];
}

static void outstanding_push(struct sched_member *member, uint32_t seq, uint64_t budget)
{
    uint32_t count = member->outstanding_count;

    while (count > 0 && (member->outstanding[count - 1].budget <= budget ||
                         member->outstanding[count - 1].seq == seq))
        count--;
    member->outstanding[count] = (struct sched_outstanding){seq, budget};
    member->outstanding_count = count + 1;
}

static bool differs(uint64_t a, uint64_t b, uint64_t tolerance)
{
    return sched_less(a, b) > tolerance || sched_less(b, a) > tolerance;
}

static uint64_t most_for(const struct sched_member *member)
{
    return sched_min(member->told_capacity, sched_member_limit(member));
}

/* Who is asked to stop goes on as it was: one that is idle and was stopped for that would say
 * WANT again until it has stopped, if it heard that nobody waits. */
static uint32_t flags_for(const struct sched_member *member)
{
    const bool run = sched_member_run(member);
    const bool waiters =
        run ? member->device->told_waiters : (member->sent_flags & GS_TARGET_WAITERS) != 0;

    return (run ? GS_TARGET_RUN : 0) | (waiters ? GS_TARGET_WAITERS : 0) |
           (member->device->member_count == 1 ? GS_TARGET_SOLE : 0) |
           (member->party->gang->paused != 0 ? GS_TARGET_PAUSED : 0);
}

/* What a holder may idle before it says so: its turn ends by it while others wait, and its
 * bursts are known by it also while nobody does. 0: no turns are taken. */
static uint64_t idle_for(const struct sched_member *member, bool waiters)
{
    return member->device->leases || waiters ? sched_party_idle(member->party) : 0;
}

static bool news(const struct sched_member *member, uint32_t flags, uint64_t idle)
{
    return flags != member->sent_flags || member->budget != member->sent_budget ||
           member->client->host_budget != member->sent_host ||
           differs(idle, member->sent_idle, idle / 2) ||
           member->device->told_shortfall != member->sent_shortfall ||
           most_for(member) != member->sent_capacity;
}

void sched_send_member(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;
    const bool first = member->seq == member->first_seq;
    const uint32_t flags = flags_for(member);
    const uint64_t idle = idle_for(member, (flags & GS_TARGET_WAITERS) != 0);
    const bool again =
        member->asked || (sched_member_stuck(member, now) && member->echoed == member->seq &&
                          now - member->sent_at >= ASK_AGAIN);

    if (first) /* it allocates by that: not what the others have still to hear */
        member->told_capacity = sched_device_most(device);
    if (!first && !again && !news(member, flags, idle))
        return;
    if (lockd_list_empty(&member->unsent)) {
        if (member->seq - member->echoed >= TARGETS_IN_FLIGHT)
            return;
        member->seq++;
        member->had = member->outstanding[0].budget;
        lockd_list_append(&device->lock->unsent, &member->unsent);
    }
    member->asked = false;
    if (((flags ^ member->sent_flags) & GS_TARGET_RUN) != 0 ||
        member->budget != member->sent_budget)
        member->turn_seq = member->seq;
    if ((flags & GS_TARGET_RUN) == 0 && (member->sent_flags & GS_TARGET_RUN) != 0)
        member->stop_seq = member->seq;
    if ((flags & ~member->sent_flags & GS_TARGET_RUN) != 0)
        member->run_seq = member->seq;
    outstanding_push(member, member->seq, member->budget);
    member->sent_flags = flags;
    member->sent_budget = member->budget;
    member->given = sched_max(member->given, member->budget);
    member->sent_capacity = most_for(member);
    member->sent_idle = idle;
    member->sent_host = member->client->host_budget;
    member->sent_shortfall = device->told_shortfall;
    member->sent_at = now;
    sched_books_member(member, now);
    if (sched_member_busy(member) && !member->party->held)
        device->stop_at = sched_min(device->stop_at, now + ASK_AGAIN);
}

/* At once that somebody waits; that nobody does can wait, as who waits may come and go. */
static void tell_waiters(struct sched_device *device, uint64_t now)
{
    if (device->waiters == device->told_waiters ||
        (device->told_waiters && now < device->quiet_at))
        return;
    device->told_waiters = device->waiters;
    lockd_list_each (at, &device->holders) {
        lockd_list_each (of, &sched_party_of(at, holder)->members)
            sched_agenda_touch(sched_member_of(of, of_party));
    }
}

/* When changes are to be told: small ones wait a little for more of them, and none comes so
 * soon after the last one that a program which says something else each time keeps all others
 * busy. */
static uint64_t time_to_tell(const struct sched_device *device, uint64_t idle, uint64_t most,
                             uint64_t shortfall, uint64_t now)
{
    if (device->told_at == 0 || (device->member_count == 1) != device->told_sole)
        return now;
    if (differs(idle, device->told_idle, idle / 2) ||
        differs(most, device->told_capacity, device->total / 64) ||
        differs(shortfall, device->told_shortfall, device->total / 16))
        return device->told_at + TELL_PAUSE;
    return most != device->told_capacity || shortfall != device->told_shortfall
               ? now + EXACT_AFTER
               : LOCKD_NEVER;
}

void sched_send_broadcast(struct sched_device *device, uint64_t now)
{
    const uint64_t idle = device->leases || device->waiters ? sched_device_idle(device) : 0;
    const uint64_t most = sched_device_most(device);
    const uint64_t shortfall = sched_device_shortfall(device);
    const uint64_t at = time_to_tell(device, idle, most, shortfall, now);

    tell_waiters(device, now);
    device->exact_at = at == LOCKD_NEVER ? at : sched_min(at, device->exact_at);
    if (now < device->exact_at)
        return;
    device->exact_at = LOCKD_NEVER;
    device->told_at = now;
    device->told_idle = idle;
    device->told_capacity = most;
    device->told_shortfall = shortfall;
    device->told_sole = device->member_count == 1;
    lockd_list_each (of, &device->members) {
        struct sched_member *member = sched_member_of(of, of_device);

        member->told_capacity = most;
        sched_agenda_touch(member);
    }
}

bool sched_next_send(struct sched *lock, struct sched_send *send)
{
    struct sched_member *member;

    if (lockd_list_empty(&lock->unsent))
        return false;
    member = lockd_entry(lock->unsent.next, struct sched_member, unsent);
    lockd_list_remove(&member->unsent);
    memset(send, 0, sizeof *send);
    send->owner = member->client->owner;
    memcpy(send->target.uuid, member->device->uuid, sizeof send->target.uuid);
    send->target.seq = member->seq;
    send->target.flags = member->sent_flags;
    send->target.budget = member->sent_budget;
    send->target.capacity = member->sent_capacity;
    send->target.idle_ns = member->sent_idle;
    send->target.host_budget = member->sent_host;
    send->target.shortfall = member->sent_shortfall;
    send->rise = sched_less(member->sent_budget, sched_max(member->had, member->resident));
    return true;
}

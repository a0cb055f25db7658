/* SPDX-License-Identifier: Apache-2.0
 *
 * capacity.c: what is left of a device for programs: its size less external memory, a reserve,
 * what is short, and what is claimed for programs that are about to come.
 *
 * *Short* means: the driver had no memory for a program although the books say that there is
 * some. For a while the device counts as smaller, so that others make room. Bytes that a
 * program asked for in this way and then did not use are held against it for some minutes. So
 * a program that reports a shortage of half the card all the time is soon ignored.
 *
 * O(1), but for a change of capacity, which plan.c answers with a recount of all members.
 */
#include "lockd/sched/room.h"

/* Room for the contexts of programs yet to come. GPUSHARE_DEVICE_LIMIT is meant to be used up:
 * what the card has beyond it is such room. The reserve is a small part of what programs can
 * have, however large somebody says that the device is. */
uint64_t sched_device_reserve(const struct sched_device *device)
{
    const struct sched_device_measure *measure = &device->measure;
    const uint64_t part = sched_less(measure->total, measure->external) / 16;

    if (device->sched->settings.reserve != LOCKD_AUTO)
        return device->sched->settings.reserve;
    return measure->measured
               ? sched_less(sched_clamp(sched_min(measure->total / 64, part), 2 * MIB, GIB),
                            measure->beyond_total)
               : 0;
}

/* Another user's programs make no room for a word: one of them has to agree that something else has
 * taken memory (measure.c). */
static bool needs_agreement(const struct sched_device *device)
{
    return device->measure.several && device->measure.measured;
}

/* A shortage that the driver reported passes: it makes programs wait, and is no reason to
 * refuse them memory. */
uint64_t sched_device_most(const struct sched_device *device)
{
    /* Memory that clients know to be pinned need not wait for a moment in which it can be
     * measured; no client counts for more than it was ever given. Another user's program need
     * not believe it. */
    const uint64_t external = sched_max(device->measure.external,
                                        needs_agreement(device) ? 0 : device->books.sum.pinned);

    return sched_less(sched_less(device->measure.total, external),
                      sched_device_reserve(device));
}

/* --- short --- */

/* How many of these bytes count. */
static uint64_t trusted_bytes(struct sched_member *member, uint64_t bytes, uint64_t now)
{
    uint64_t taken;

    for (; now - member->shortage.forget_at >= 30 * GRACE && member->shortage.unused != 0;
         member->shortage.forget_at += 30 * GRACE)
        member->shortage.unused /= 2;
    if (member->shortage.unused == 0)
        member->shortage.forget_at = now;
    taken = sched_min(bytes,
                      sched_less(member->device->measure.total / 2, member->shortage.unused));
    member->shortage.unused += taken;
    return taken;
}

/* The driver had no memory for it, although the books say there is: others are made to leave,
 * by lowering the capacity for a while. Never so far that the reporter itself would not fit:
 * when all others have left there is nothing more to be had. */
void sched_short_report(struct sched_member *member, uint64_t bytes, uint64_t now)
{
    struct sched_device *device = member->device;
    const uint64_t others = sched_less(sched_device_most(device), member->report.demand);
    uint64_t taken;

    sched_sooner(&device->grace_at, now); /* patience may be shorter */
    if (!sched_member_run(member) || !sched_member_wants(member))
        return;
    if (member->shortage.at != 0 && now - member->shortage.at < REPEAT)
        return;
    member->shortage.at = now;
    sched_measure_short(member, bytes, now);
    if (needs_agreement(device))
        return;
    taken = trusted_bytes(member, bytes, now);
    if (taken == 0)
        return;
    device->space.short_bytes = sched_min(device->space.short_bytes + taken,
                                          sched_min(others, device->measure.total / 2));
    device->space.short_until = now + GRACE;
}

/* The member has more than it had before in this turn. */
void sched_short_used(struct sched_member *member)
{
    const uint64_t has = member->report.resident + sched_member_pinned(member);

    member->shortage.unused =
        sched_less(member->shortage.unused, sched_less(has, member->shortage.had));
    member->shortage.had = sched_max(member->shortage.had, has);
}

/* --- all of it together --- */

void sched_device_refresh(struct sched_device *device, uint64_t now)
{
    uint64_t capacity;

    if (device->space.short_bytes != 0 && needs_agreement(device))
        device->space.short_bytes = device->space.fell_at = 0;
    if (device->space.short_bytes != 0 && now >= device->space.short_until) {
        device->space.short_bytes /= 2;
        device->space.short_until = now + GRACE;
        if (device->space.short_bytes < 2 * MIB)
            device->space.short_bytes = 0;
    }
    device->space.claimed = 0;
    lockd_each (const struct sched_claim, claim, &device->sched->claims, link) {
        if (memcmp(claim->uuid, device->uuid, sizeof claim->uuid) == 0)
            device->space.claimed += sched_min(claim->bytes, device->measure.total);
    }
    /* never nothing: it would be room for any number of programs that need more */
    capacity = sched_max(sched_less(sched_device_most(device),
                                    device->space.short_bytes + device->space.claimed),
                         1);
    if (device->space.fell_at != 0 && now >= device->space.fell_at + REPEAT / 2)
        device->space.fell_at = 0;
    if (capacity == device->space.capacity ||
        (capacity > device->space.capacity && device->space.fell_at != 0))
        return;
    if (capacity < device->space.capacity)
        device->space.fell_at = now; /* not up and down with every word of somebody's */
    device->space.capacity = capacity;
    device->agenda.recount = true;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * short.c: the driver had no memory for a program although the books say that there is.
 * For a while the device counts as smaller, so that others make room. No state of its own.
 *
 * What a program asked for in this way and then did not use is held against it for some
 * minutes: who is short of half the card all the time, and has use for none of it, is soon not
 * heard any more.
 */
#include "lockd/sched/parts.h"

/* How much of it counts. */
static uint64_t trusted(struct sched_member *member, uint64_t bytes, uint64_t now)
{
    uint64_t taken;

    for (; now - member->short_forget_at >= SHORT_FORGET && member->short_unused != 0;
         member->short_forget_at += SHORT_FORGET)
        member->short_unused /= 2;
    if (member->short_unused == 0)
        member->short_forget_at = now;
    taken = sched_min(bytes, sched_less(member->device->total / 2, member->short_unused));
    member->short_unused += taken;
    return taken;
}

/* The driver had no memory for it, although the books say there is: others are made to leave,
 * by lowering the capacity for a while. Never so far that the reporter itself would not fit:
 * when all others have left there is nothing more to be had. */
void sched_short_report(struct sched_member *member, uint64_t bytes, uint64_t now)
{
    struct sched_device *device = member->device;
    const uint64_t others = sched_less(sched_device_most(device), member->demand);
    uint64_t taken;

    device->grace_at = sched_min(device->grace_at, now); /* patience may be shorter */
    if (!sched_member_run(member) || !sched_member_wants(member))
        return;
    if (member->short_at != 0 && now - member->short_at < SHORT_REPEAT)
        return;
    member->short_at = now;
    sched_measure_short(member, bytes, now);
    taken = trusted(member, bytes, now);
    if (taken == 0)
        return;
    device->short_bytes =
        sched_min(device->short_bytes + taken, sched_min(others, device->total / 2));
    device->short_until = now + SHORT_DECAY;
}

/* It has more than it had before in this turn. */
void sched_short_used(struct sched_member *member)
{
    const uint64_t has = member->resident + sched_member_pinned(member);

    member->short_unused = sched_less(member->short_unused, sched_less(has, member->short_had));
    member->short_had = sched_max(member->short_had, has);
}

void sched_short_decay(struct sched_device *device, uint64_t now)
{
    if (device->short_bytes == 0 || now < device->short_until)
        return;
    device->short_bytes /= 2;
    device->short_until = now + SHORT_DECAY;
    if (device->short_bytes < 2 * MIB)
        device->short_bytes = 0;
}

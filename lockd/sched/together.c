/* SPDX-License-Identifier: Apache-2.0
 *
 * together.c: the programs of a gang stop together or not at all. One of them may have submitted
 * a collective that spins on its device until all others have, too; when another one is stopped
 * before that, the first never stops, and if its memory is needed by what runs there next, nor
 * does anything else.
 *
 * So a turn that is to end is *closed* first: all are told to stop and keep their places and
 * memory. When all have stopped, the turn ends. When some have and others do not within
 * CLOSED_NS, the turn is *opened* again for a moment, in which the ones that stopped catch up
 * with the others, and is closed anew. State: gang->closing.
 */
#include "lockd/sched/together.h"

#include "lockd/sched/device.h"

#define CLOSED_NS (150 * NS_PER_MS)
#define OPEN_MIN  (20 * NS_PER_MS)
#define OPEN_MAX  (1000 * NS_PER_MS)
#define LONGEST   (60000 * NS_PER_MS) /* then it counts as stuck, like any other */

static void touch_gang(struct sched_gang *gang)
{
    lockd_list_each (at, &gang->parties) {
        lockd_list_each (of, &sched_party_of(at, of_gang)->members)
            sched_agenda_touch(sched_member_of(of, of_party));
    }
}

static bool has_stopped(const struct sched_member *member)
{
    return (member->report.flags & GS_STATE_RUNNING) == 0 &&
           (member->sent.flags & GS_TARGET_RUN) == 0 &&
           member->report.echoed >= member->sent.stop_seq;
}

/* stopped: those that could go on. */
static void count_members(const struct sched_gang *gang, uint32_t *running, uint32_t *stopped)
{
    *running = *stopped = 0;
    lockd_list_each (at, &gang->parties) {
        lockd_list_each (of, &sched_party_of(at, of_gang)->members) {
            const struct sched_member *member = sched_member_of(of, of_party);

            if (!has_stopped(member))
                ++*running;
            else if ((member->report.flags & GS_STATE_WANT) != 0)
                ++*stopped;
        }
    }
}

static void close_gang(struct sched_gang *gang, bool closed, uint64_t until)
{
    gang->closing.closed = closed;
    gang->closing.until = until;
    touch_gang(gang);
}

/* The time of a phase is over. */
static void next_phase(struct sched_gang *gang, bool some_stopped, uint64_t now)
{
    struct sched_gang_closing *closing = &gang->closing;

    if (!closing->closed) {
        close_gang(gang, true, now + CLOSED_NS);
    } else if (some_stopped) {
        close_gang(gang, false, now + closing->open_ns);
        closing->open_ns = sched_min(2 * closing->open_ns, OPEN_MAX);
    } else {
        closing->until = now + CLOSED_NS; /* all of them finish what they have submitted */
    }
}

bool sched_together_stop(struct sched_gang *gang, struct sched_device *by, uint64_t now)
{
    struct sched_gang_closing *closing = &gang->closing;
    uint32_t running, stopped;

    if (gang->client_count < 2 || !gang->runs)
        return true;
    count_members(gang, &running, &stopped);
    if (running == 0 || (closing->by != NULL && now - closing->began >= LONGEST))
        return true;
    if (closing->by == NULL) {
        *closing = (struct sched_gang_closing){.by = by, .began = now, .open_ns = OPEN_MIN};
        by->turns.closing++;
        close_gang(gang, true, now + CLOSED_NS);
    } else if (now >= closing->until) {
        next_phase(gang, stopped != 0, now);
    }
    closing->wanted = closing->wanted || closing->by == by;
    by->stop_at = sched_min(by->stop_at, closing->until);
    return false;
}

void sched_together_forget(struct sched_gang *gang)
{
    if (gang->closing.by == NULL)
        return;
    gang->closing.by->turns.closing--;
    gang->closing = (struct sched_gang_closing){.by = NULL};
    touch_gang(gang);
}

void sched_together_begin_plan(struct sched_device *device)
{
    if (device->turns.closing == 0)
        return;
    lockd_list_each (at, &device->turns.holders) {
        struct sched_gang *gang = sched_party_of(at, turn.holder)->gang;

        if (gang->closing.by == device)
            gang->closing.wanted = false;
    }
}

void sched_together_end_plan(struct sched_device *device)
{
    if (device->turns.closing == 0)
        return;
    lockd_list_each (at, &device->turns.holders) {
        struct sched_gang *gang = sched_party_of(at, turn.holder)->gang;

        if (gang->closing.by == device && !gang->closing.wanted)
            sched_together_forget(gang);
    }
}

void sched_together_heard(const struct sched_gang *gang)
{
    if (gang->closing.by != NULL)
        sched_agenda_plan(gang->closing.by);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * denial.c: claims of memory on a device where several users have programs. Together they cannot be
 * more than the bytes in use: by the card, or else by the report of another user's program. If
 * they are, twice in a row, a program is believed as far as the card shows memory of its process.
 * Where that is not known, a program that should have left and has not pays for the excess. Owns
 * struct sched_member_evidence.
 */
#include "lockd/sched/room.h"

#define DENIALS 2 /* in a row; a report may be late once */

void sched_denial_note(struct sched_member *member)
{
    struct sched_client *client = member->client;

    if (member->evidence.named)
        return;
    member->evidence.named = true;
    client->contradicted = client->sched->remarkable = true;
}

static void believe_most(struct sched_member *member, uint64_t most, uint64_t now)
{
    const bool before = sched_member_denied(member);

    if (most == member->evidence.most)
        return;
    sched_books_time(member, now);
    member->evidence.most = most;
    member->report.resident = sched_min(member->report.claimed, most);
    member->device->measure.trust_changed |= sched_member_denied(member) != before;
    sched_books_member(member, now);
    sched_agenda_touch(member);
}

/* A claim of its user's programs proved wrong, not long ago. A user may have many programs, or the same
 * one many connections: what one of them showed counts for all. */
static bool has_false_kin(const struct sched_member *member, uint64_t now)
{
    const struct sched_user *user = sched_user_of(member->device, member->client->user, now);

    return user != NULL && user->denied_at != 0 && now - user->denied_at < 3 * GRACE;
}

/* The card itself takes time to show what has come or left; a program's figure is of its report. */
static bool is_known_to_lie(const struct sched_member *member, uint64_t now)
{
    return member->device->measure.card_at == 0 && has_false_kin(member, now);
}

/* The part of a claim that may be wrong. by_process: of a claim beyond the bytes that the card
 * shows of the process; else of any other claim. */
static uint64_t doubtful_part(const struct sched_member *member, bool by_process,
                              uint64_t excess, uint64_t now)
{
    const uint64_t claim = member->evidence.least, shown = member->evidence.shown;
    const bool beyond_process = shown != UINT64_MAX && claim > shown;

    if (excess == 0 || beyond_process != by_process || member->books.share.unsure_most != 0)
        return 0;
    if (by_process)
        return sched_min(claim - shown, excess);
    /* it was to stop a second ago, and runs or has more than it may; that it answers is no progress */
    if (member->party->turn.held ||
        (member->books.owes == LOCKD_NEVER && !sched_member_busy(member)) ||
        sched_less(now, member->stopped) < (is_known_to_lie(member, now) ? 0 : SILENT))
        return 0;
    return sched_min(claim, excess);
}

static void deny_member(struct sched_member *member, uint64_t most, uint64_t now)
{
    struct sched_user *user = sched_user_of(member->device, member->client->user, now);

    member->device->measure.denied++;
    member->evidence.denied_now = true;
    if (member->evidence.denied < DENIALS)
        member->evidence.denied =
            is_known_to_lie(member, now) ? DENIALS : (member->evidence.denied + 1) & 3;
    member->device->measure.doubted += member->evidence.denied < DENIALS;
    if (member->evidence.denied == DENIALS) {
        sched_denial_note(member);
        believe_most(member, most, now);
        if (user != NULL)
            user->denied_at = now;
    }
}

/* So many bytes of the device are in use, says the card, or that program. */
void sched_denial_judge(struct sched_device *device, uint64_t used,
                        const struct sched_member *by, uint64_t now)
{
    const uint64_t spare = device->measure.total / CARD_ROUNDING;
    uint64_t claims = 0, excess;

    device->measure.denied = device->measure.doubted = 0;
    lockd_each (struct sched_member, member, &device->members, of_device) {
        if (member->books.share.unsure_most == 0)
            claims += member->evidence.least;
        /* it was asked to stop and says that it runs, and its process has not even a context there */
        if (by == NULL && device->measure.several && member->evidence.shown == 0 &&
            !member->party->turn.held && (member->report.flags & GS_STATE_RUNNING) != 0 &&
            sched_less(now, member->stopped) >= SILENT)
            deny_member(member, 0, now);
    }
    excess = claims > used + spare && device->measure.several ? claims - used : 0;
    for (int by_process = 1; by_process >= 0; by_process--) {
        lockd_each (struct sched_member, member, &device->members, of_device) {
            uint64_t part;

            if (by != NULL && !sched_denial_is_other(member, by))
                continue;
            part = doubtful_part(member, by_process, excess, now);
            if (part != 0 && !member->evidence.denied_now)
                deny_member(member, member->evidence.least - part, now);
            excess = sched_less(excess, part);
        }
    }
    lockd_each (struct sched_member, member, &device->members, of_device) {
        const bool denied = member->evidence.denied_now;
        const uint64_t shown = member->evidence.shown;

        member->evidence.least = member->report.claimed;
        member->evidence.denied_now = false;
        if (denied || (by != NULL && !sched_denial_is_other(member, by)))
            continue;
        /* Else the card shows all that it claims, or nothing was wrong with its claims for long: a
         * wrong claim costs others a second or two, which is a small part of that. */
        if (sched_member_denied(member) &&
            (shown == 0 || shown == UINT64_MAX || member->report.claimed > shown) &&
            has_false_kin(member, now)) {
            device->measure.denied++;
            continue;
        }
        member->evidence.denied = 0;
        believe_most(member, UINT64_MAX, now);
    }
}

/* Nobody is left who could deny, or the card does not answer any more. */
void sched_denial_end(struct sched_device *device, uint64_t now)
{
    device->measure.denied = device->measure.doubted = 0;
    device->measure.card_at = 0;
    device->measure.trust_changed = true;
    lockd_each (struct sched_member, member, &device->members, of_device) {
        member->evidence.shown = UINT64_MAX;
        member->evidence.denied = 0;
        if (!device->measure.several)
            believe_most(member, UINT64_MAX, now);
    }
}

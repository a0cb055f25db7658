/* SPDX-License-Identifier: Apache-2.0
 *
 * denial.c: claims of memory on a device where several users have programs. Together they cannot be
 * more than the bytes that the card says are in use. If they are, twice in a row, a program is
 * believed as far as the card shows memory of its process. Where that is not known, a program
 * that should have left and has not pays for the excess. Owns struct sched_member_evidence.
 *
 * Where the card cannot be asked, a claim stands. But what a program measures itself counts for
 * the turns of its user: these do not wait for a program of another user that should have left,
 * as far as the figure shows that its memory is free. If that is not true, the turn begins too
 * early and waits for the memory: a word costs its own user and nobody else.
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

/* --- programs that should have left --- */

bool sched_denial_by_word(const struct sched_device *device)
{
    return device->measure.several && device->measure.card_at == 0 &&
           !lockd_list_empty(&device->books.stopping);
}

/* It should have left some time ago: what others report since was measured after that. */
static bool is_overdue(const struct sched_member *member, uint64_t now)
{
    return !member->party->turn.held && !lockd_list_empty(&member->books.stopping) &&
           sched_less(now, sched_max(member->books.leaves, member->stopped)) >= RESTART_SETTLE;
}

uint64_t sched_denial_overdue_bytes(const struct sched_device *device, uint64_t now)
{
    uint64_t bytes = 0;

    if (!sched_denial_by_word(device))
        return 0;
    lockd_each (const struct sched_member, member, &device->books.stopping, books.stopping) {
        if (is_overdue(member, now))
            bytes += member->books.share.resident - member->books.share.unsure;
    }
    return bytes;
}

/* What the program measures shows how much programs have that should have left. That is its word: it
 * counts for the turns of its own user, whose programs wait for what is not free, and for no other's. */
void sched_denial_found(struct sched_member *by, uint64_t device_free, uint64_t now)
{
    struct sched_device *device = by->device;
    const uint64_t used = sched_less(device->measure.total, device_free),
                   spare = device->measure.total / CARD_ROUNDING;
    struct sched_user *user =
        sched_denial_by_word(device) ? sched_user_of(device, by->client->user, now) : NULL;

    if (user == NULL)
        return;
    user->found_at = now;
    user->found = sched_less(used, device->measure.external + device->books.sum.resident -
                                       device->books.sum.unsure -
                                       sched_denial_overdue_bytes(device, now));
    lockd_each (struct sched_member, member, &device->books.stopping, books.stopping) {
        if (is_overdue(member, sched_less(now, MOVED_BY)) &&
            sched_denial_is_other(member, by) && member->report.claimed > user->found + spare)
            sched_denial_note(member);
    }
}

/* The sums over programs that should have left, as one user sees them. They are made anew only when
 * something has changed: each party that waits asks, and a user may have a thousand programs. */
static const struct sched_user_late *late_of(const struct sched_device *device,
                                             struct sched_user *user)
{
    const uint64_t changes = device->books.changes + device->turns.generation;
    struct sched_user_late *late = &user->late;

    if (late->changes == changes && late->found_at == user->found_at &&
        late->judge_asked == device->measure.judge_asked)
        return late;
    *late = (struct sched_user_late){.changes = changes,
                                     .found_at = user->found_at,
                                     .judge_asked = device->measure.judge_asked};
    lockd_each (const struct sched_member, member, &device->books.stopping, books.stopping) {
        const struct sched_member_books *books = &member->books;
        const struct sched_party_books *party = &member->party->books;

        if (member->client->user == user->id) {
            late->kin += is_overdue(member, late->judge_asked) ? books->share.hold : 0;
        } else if (user->found_at != 0 && is_overdue(member, user->found_at)) {
            late->others.hold += books->share.hold;
            late->others.busy += sched_min(books->share.kept, party->need_busy);
            late->others.lost += sched_min(books->share.kept, party->lost);
        }
    }
    return late;
}

uint64_t sched_denial_kin_bytes(const struct sched_party *party)
{
    const struct sched_device *device = party->device;
    uint64_t bytes;

    if (party->wanting.user == NULL || !sched_denial_by_word(device))
        return 0;
    bytes = late_of(device, party->wanting.user)->kin;
    lockd_each (const struct sched_member, member, &party->members, of_party) {
        if (is_overdue(member, device->measure.judge_asked))
            bytes = sched_less(bytes, member->books.share.hold);
    }
    return bytes;
}

struct sched_passed sched_denial_passed(const struct sched_party *party)
{
    struct sched_user *user = party->wanting.user;
    struct sched_passed passed;

    if (user == NULL || user->found_at == 0 || !sched_denial_by_word(party->device))
        return (struct sched_passed){0};
    passed = late_of(party->device, user)->others;
    passed.hold = sched_less(passed.hold, user->found);
    passed.busy = sched_less(passed.busy, user->found);
    passed.lost = sched_less(passed.lost, user->found);
    return passed;
}

/* --- claims --- */

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

/* What it says may be on its way, and so not what it has now. */
static bool is_moving(const struct sched_member *member, uint64_t now)
{
    return member->books.share.unsure_most != 0 &&
           !is_overdue(member, sched_less(now, MOVED_BY));
}

/* The part of a claim that may be wrong. by_process: of a claim beyond the bytes that the card
 * shows of the process; else of any other claim. */
static uint64_t doubtful_part(const struct sched_member *member, bool by_process,
                              uint64_t excess, uint64_t now)
{
    const uint64_t claim = member->evidence.least, shown = member->evidence.shown;
    const bool beyond_process = shown != UINT64_MAX && claim > shown;

    if (excess == 0 || beyond_process != by_process || is_moving(member, now))
        return 0;
    if (by_process)
        return sched_min(claim - shown, excess);
    return is_overdue(member, sched_less(now, SILENT)) ? sched_min(claim, excess) : 0;
}

static void deny_member(struct sched_member *member, uint64_t most, uint64_t now)
{
    struct sched_user *user = sched_user_of(member->device, member->client->user, now);

    member->device->measure.denied++;
    member->evidence.denied_now = true;
    if (member->evidence.denied < DENIALS)
        member->evidence.denied++;
    member->device->measure.doubted += member->evidence.denied < DENIALS;
    if (member->evidence.denied == DENIALS) {
        sched_denial_note(member);
        believe_most(member, most, now);
        if (user != NULL)
            user->denied_at = now;
    }
}

void sched_denial_judge(struct sched_device *device, uint64_t used, uint64_t now)
{
    const uint64_t spare = device->measure.total / CARD_ROUNDING;
    uint64_t claims = 0, excess;

    device->measure.denied = device->measure.doubted = 0;
    lockd_each (struct sched_member, member, &device->members, of_device) {
        if (!is_moving(member, now))
            claims += member->evidence.least;
        /* it was asked to stop and says that it runs, and its process has not even a context there */
        if (device->measure.several && member->evidence.shown == 0 &&
            !member->party->turn.held && (member->report.flags & GS_STATE_RUNNING) != 0 &&
            sched_less(now, member->stopped) >= SILENT)
            deny_member(member, 0, now);
    }
    excess = claims > used + spare && device->measure.several ? claims - used : 0;
    for (int by_process = 1; by_process >= 0; by_process--) {
        lockd_each (struct sched_member, member, &device->members, of_device) {
            const uint64_t part = doubtful_part(member, by_process, excess, now);

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
        if (denied)
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

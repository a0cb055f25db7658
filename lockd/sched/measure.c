/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: the size of a device, and the part of it that is no program's movable memory
 * (contexts, pinned memory, programs without gpushare: *external*), by the figures of free
 * memory that programs report.
 *
 * Each report puts external between two figures: the bytes in use, less the bytes that
 * programs have. A program that moves memory, or has not read a new budget, may have anything
 * between nothing and the most that it may hold. Of managed memory that is not counted the driver
 * may have brought in any part. Without such programs both figures are the same.
 *
 * A report that contradicts the known value opens a *doubt*. The word of a single program is
 * not enough: a moment later it is asked again, together with some others. A value that another
 * program agrees to is known as soon as all have answered; so is a value that no program denied
 * for a while, in which all were asked twice. A tie keeps the old value. Where several users have
 * programs, "another program" is one of another user: what all programs of one user say may cost
 * that user, and nobody else. A value that only one user's programs have said falls as soon as
 * another user's program says less, since the driver itself corrects a value that is too low. A
 * program in which an allocation is under way has no figure of free memory to say, so it neither
 * agrees nor denies.
 *
 * Where the daemon can ask the card itself (sched_card), its answers take the place of the
 * programs' figures. An answer is compared with external in the same way as a report; two in a
 * row settle it.
 *
 * What programs claim to have is bounded in denial.c.
 *
 * The memory of a program whose connection has ended is not external for the next few seconds
 * either: the program has lost its connection and comes back, or the driver clears up after
 * it. Nor is memory that programs handed over and nobody took, which the daemon releases.
 */
#include "lockd/sched/room.h"

#define ASKED 8 /* programs at a time, so that a liar keeps few busy */

static uint64_t departed_bytes(const struct sched_device *device)
{
    return device->measure.departed.recent + device->measure.departed.older;
}

/* Windows that have passed. True if something expired with them. */
static bool expire_departed(struct sched_device *device, uint64_t now)
{
    struct sched_departed *gone = &device->measure.departed;
    const uint64_t before = departed_bytes(device);

    for (int i = 0; i < 2 && departed_bytes(device) != 0 && now - gone->since >= RETURN_WINDOW;
         i++) {
        gone->older = gone->recent;
        gone->recent = 0;
        gone->since += RETURN_WINDOW;
    }
    return departed_bytes(device) != before;
}

static void add_departed(struct sched_device *device, uint64_t *window, uint64_t bytes,
                         uint64_t now)
{
    expire_departed(device, now);
    if (departed_bytes(device) == 0)
        device->measure.departed.since = now;
    *window += sched_min(bytes, sched_less(device->measure.total, departed_bytes(device)));
}

/* It ends with this window. With two of them, what is released at each hand-off would hide for ever
 * what somebody else takes. */
void sched_releasing(struct sched *sched, const uint8_t *uuid, uint64_t bytes, uint64_t now_ns)
{
    struct sched_device *device = sched_device_find(sched, uuid);

    if (device != NULL)
        add_departed(device, &device->measure.departed.older, bytes, now_ns);
}

uint64_t sched_measure_came_with(const struct sched_device *device,
                                 const struct gs_wire_state *state, uint64_t now)
{
    uint64_t seen = 0;

    if (now - device->sched->created < RETURN_WINDOW)
        seen = state->device_total;
    else if (device->measure.measured)
        seen =
            sched_min(device->measure.external + departed_bytes(device), device->measure.total);
    else if (state->device_free != UINT64_MAX)
        seen = sched_less(state->device_total, state->device_free);
    return sched_min(state->resident, seen);
}

static uint64_t steps_up(uint64_t bytes)
{
    return (bytes + SHARE_STEP - 1) / SHARE_STEP * SHARE_STEP;
}

static void set_external(const struct sched_member *member, uint64_t value, bool backed)
{
    struct sched_device_measure *measure = &member->device->measure;

    measure->external = value;
    measure->backed_by = member->client->user;
    measure->backed = backed;
    measure->doubt.by = NULL;
}

/* What has risen may be memory that a program has just taken and not told yet, which all others
 * see. */
static bool owes_answer(const struct sched_device *device)
{
    lockd_each (const struct sched_member, member, &device->members, of_device)
        if (!member->sent.ended && member->report.echoed != member->sent.seq)
            return true;
    return false;
}

/* The doubt was asked about, and this word decides it. */
static bool is_decided(const struct sched_member *member, bool rise, uint64_t now)
{
    const struct sched_doubt *open = &member->device->measure.doubt;
    const bool late = open->asked && now - open->ask_at >= SILENT;

    if (!open->asked || (rise && !late && owes_answer(member->device)))
        return false;
    if (open->foreign && sched_denial_is_other(member, open->by))
        return true;
    if (open->foreign && rise)
        return false;
    return (!open->foreign && open->by != member) || open->alone || late;
}

static bool card_answers(const struct sched_device *device, uint64_t now)
{
    return device->measure.several && device->measure.card_at != 0 &&
           now - device->measure.card_at < 5 * REPEAT; /* five questions without an answer */
}

/* Somebody says that external is at least and at most so much. */
static void weigh_report(struct sched_member *member, uint64_t least, uint64_t most,
                         uint64_t now)
{
    struct sched_device *device = member->device;
    struct sched_doubt *open = &device->measure.doubt;
    const uint64_t known = device->measure.external, value = known < least ? least : most,
                   spare = device->measure.total / CARD_ROUNDING;
    const bool rise = known < least;

    if (card_answers(device, now)) { /* a report that goes on to contradict it is a lie */
        if (least <= known + spare && known <= most + spare)
            member->evidence.against = 0;
        else if (member->evidence.against == 0)
            member->evidence.against = now;
        else if (now - member->evidence.against >= MOVED_BY)
            sched_denial_note(member);
        return;
    }
    if (least <= known && known <= most) {
        if (open->by != NULL && open->asked && open->foreign &&
            sched_denial_is_other(member, open->by) &&
            (open->value < least || open->value > most))
            sched_denial_note(open->by);
        if (open->asked && (open->by == member || open->value < least || open->value > most))
            open->by = NULL;
        device->measure.backed |= member->client->user != device->measure.backed_by;
        return;
    }
    if (!rise && (device->member_count == 1 || /* it concerns no other member */
                  (device->measure.several && !device->measure.backed &&
                   member->client->user != device->measure.backed_by))) {
        set_external(member, value, false);
        return;
    }
    if (open->by == NULL || (open->value > known) != rise) {
        *open = (struct sched_doubt){
            .by = member,
            .value = value,
            .ask_at = sched_max(now + EXTERNAL_CONFIRM, open->ask_next),
            .ask_next = open->ask_next,
        };
        return;
    }
    open->value = rise ? sched_min(open->value, most) : sched_max(open->value, least);
    if (!is_decided(member, rise, now))
        return;
    set_external(open->by, open->value, sched_denial_is_other(open->by, member));
    weigh_report(member, least, most,
                 now); /* it may say more than all agree to: nobody says so again */
}

static void ask_member(struct sched_member *member)
{
    member->agenda.asked = true;
    sched_agenda_touch(member);
}

static bool can_tell(const struct sched_member *member)
{
    return member->report.measures && member->report.echoed == member->sent.seq &&
           (member->report.flags & GS_STATE_MOVING) == 0;
}

/* Asks it; next time another one is asked first. */
static void ask_in_turn(struct sched_member *member)
{
    ask_member(member);
    lockd_list_remove(&member->of_device);
    lockd_list_append(&member->device->members, &member->of_device);
}

/* Asks a program of each user, but of those that should leave; also in the midst of a move, where a
 * program waits for memory that others claim. */
static void ask_users(struct sched_device *device, uint64_t now)
{
    lockd_each (struct sched_member, member, &device->members, of_device) {
        struct sched_user *user =
            member->report.measures && lockd_list_empty(&member->books.stopping)
                ? sched_user_of(device, member->client->user, now)
                : NULL;

        if (user == NULL || user->asked_at == now)
            continue;
        user->asked_at = now;
        ask_in_turn(member);
    }
}

/* Something should have left, and only programs can tell whether there is room for them: when to
 * ask. */
static uint64_t time_to_judge(const struct sched_device *device)
{
    const struct sched_device_measure *measure = &device->measure;

    /* A stopped program has memory that others wait for, and does not say what is free. If nothing
     * else happens, what was last believed to be external would keep them waiting for ever. */
    if (!measure->several && device->turns.waiters) {
        lockd_each (const struct sched_member, member, &device->books.stopping, books.stopping)
            if (member->sent.ended)
                return measure->judge_asked + SILENT;
    }
    return sched_denial_by_word(device) &&
                   (device->turns.waiters || !lockd_list_empty(&device->books.hungry))
               ? measure->judge_asked + 2 * TELL_PAUSE
               : LOCKD_NEVER;
}

static uint64_t time_to_ask(const struct sched_doubt *open)
{
    return open->by == NULL ? LOCKD_NEVER : open->asked ? open->again_at : open->ask_at;
}

uint64_t sched_measure_deadline(const struct sched_device *device)
{
    return sched_min(sched_min(time_to_ask(&device->measure.doubt), time_to_judge(device)),
                     departed_bytes(device) != 0
                         ? device->measure.departed.since + RETURN_WINDOW
                         : LOCKD_NEVER);
}

bool sched_measure_ask(struct sched_device *device, uint64_t now)
{
    struct sched_doubt *open = &device->measure.doubt;
    const bool judges = now >= time_to_judge(device);
    uint32_t others = 0;
    bool alone = true;

    if (expire_departed(device,
                        now)) { /* nobody need have anything to say when it stays away */
        lockd_each (struct sched_member, member, &device->members, of_device) {
            if (!can_tell(member))
                continue;
            ask_in_turn(member);
            break;
        }
    }
    if (judges) {
        device->measure.judge_asked = now;
        ask_users(device, now);
    }
    if (now < time_to_ask(open))
        return judges;
    open->foreign = device->measure.several;
    open->asked = true;
    open->again_at = now + SILENT;
    open->ask_next = now + 2 * TELL_PAUSE;
    ask_member(open->by);
    lockd_each (struct sched_member, member, &device->members, of_device) {
        if (others == ASKED)
            break;
        if (member == open->by || (open->foreign && !sched_denial_is_other(member, open->by)))
            continue;
        /* what has risen may be memory that a program is just taking: it can tell a little later */
        alone &= !can_tell(member) && open->value <= device->measure.external;
        if (!can_tell(member))
            continue;
        others++;
        ask_member(member);
    }
    open->alone = alone;
    return judges;
}

static bool has_several_users(const struct sched_device *device)
{
    const struct sched_member *first = sched_member_of(device->members.next, of_device);

    lockd_each (const struct sched_member, member, &device->members, of_device)
        if (sched_denial_is_other(first, member))
            return true;
    return false;
}

/* Whether external may be less than is known: somebody says so, or the card was last asked before
 * `asked_at`. */
static bool may_fall(const struct sched_device *device, uint64_t asked_at, uint64_t now)
{
    const struct sched_device_measure *measure = &device->measure;

    if (card_answers(device, now))
        return measure->card_asked < asked_at ||
               (measure->card_denies && measure->card_value < measure->external);
    return measure->doubt.by != NULL && measure->doubt.value < measure->external;
}

void sched_measure_answer(struct sched_device *device, uint64_t now)
{
    uint64_t *oldest = &device->measure.asked_at;

    if (*oldest == 0 || may_fall(device, *oldest, now))
        return;
    *oldest = 0;
    lockd_each (struct sched_member, member, &device->members, of_device) {
        const uint64_t asked_at = member->report.asked_at;

        if (asked_at != 0 && may_fall(device, asked_at, now)) {
            *oldest = *oldest == 0 ? asked_at : sched_min(*oldest, asked_at);
        } else if (asked_at != 0) {
            member->report.asked_at = 0;
            sched_agenda_touch(member);
        }
    }
}

/* The least and the most that external is if so much is free. Contexts and the like are counted
 * in whole steps. */
static void bound_external(const struct sched_device *device, uint64_t device_free,
                           uint64_t now, uint64_t *least, uint64_t *most)
{
    const struct sched_share *sum = &device->books.sum;
    const uint64_t total = device->measure.total, used = sched_less(total, device_free),
                   sure = sum->resident - sum->unsure,
                   may_have = sum->unsure_most + sum->loose + departed_bytes(device);

    *most = sched_min(
        steps_up(sched_less(used, sure - sched_denial_overdue_bytes(device, now))), total);
    *least = sched_min(steps_up(sched_less(used, sure + may_have)), total);
}

/* The card is asked only if the member's own figure says that there is more, or it has none. A question
 * beside an open one comes again, with the echo of the answer. */
void sched_measure_asked(struct sched_member *member, const struct gs_wire_state *state,
                         uint64_t now)
{
    struct sched_device *device = member->device;
    struct sched_device_measure *measure = &device->measure;
    uint64_t least, most;

    if (state->asked == member->report.asked || member->report.asked != member->sent.answered)
        return;
    member->report.asked = state->asked;
    bound_external(device, state->device_free, now, &least, &most);
    if (card_answers(device, now) ? most >= measure->external : !may_fall(device, now, now))
        return;
    member->report.asked_at = now;
    measure->asked_at = measure->asked_at == 0 ? now : measure->asked_at;
}

/* After a restart it can be told only when all that held something from an earlier daemon have
 * come back. */
static bool is_settling(const struct sched_device *device, uint64_t now)
{
    return device->measure.restarted && now - device->sched->created < RETURN_WINDOW;
}

static void measure_external(struct sched_member *member, uint64_t device_free, uint64_t now)
{
    struct sched_device *device = member->device;
    uint64_t least, most;

    if (is_settling(device, now))
        return;
    bound_external(device, device_free, now, &least, &most);
    /* with several users no program's word takes the reserve from the others */
    device->measure.beyond_total =
        device->measure.several
            ? 0
            : sched_less(device_free + device->books.sum.resident - device->books.sum.unsure,
                         device->measure.total);
    if (!device->measure.measured) {
        set_external(member, least, false);
        device->measure.measured = true;
        return;
    }
    weigh_report(member, least, most, now);
}

void sched_measure_short(struct sched_member *member, uint64_t bytes, uint64_t now)
{
    struct sched_device *device = member->device;
    const struct sched_share *sum = &device->books.sum, *own = &member->books.share;
    const uint64_t used = sched_less(device->measure.total, bytes),
                   theirs = sum->resident - sum->unsure + own->unsure + sum->unsure_most -
                            own->unsure_most + sum->loose - own->loose + departed_bytes(device);

    if (device->measure.measured)
        weigh_report(member, sched_less(used, theirs) / SHARE_STEP * SHARE_STEP,
                     device->measure.total, now);
}

bool sched_measure_is_word(const struct sched_member *member)
{
    const struct sched_device_measure *measure = &member->device->measure;

    return measure->several && !measure->backed && measure->backed_by != member->client->user;
}

/* The free bytes do not change with the total that programs say: until external is measured,
 * the difference counts as external. A figure that only another user's programs have said of a
 * smaller device says nothing of this total. */
static void set_total(struct sched_device *device, uint64_t total,
                      const struct sched_member *by)
{
    if (total == device->measure.total)
        return;
    if (total > device->measure.total && sched_measure_is_word(by))
        device->measure.measured = false;
    device->measure.external =
        device->measure.measured
            ? sched_less(device->measure.external + total, device->measure.total)
            : 0;
    device->measure.backed = false;
    device->measure.backed_by = by->client->user;
    device->measure.doubt.by = NULL;
    device->measure.total = total;
    device->agenda.recount = true;
    /* a party may be hopeless, or not be any more */
    lockd_each (struct sched_party, party, &device->parties, of_device)
        sched_agenda_settle_gang(party->gang);
}

/* With programs of one user the word of a program that measures counts, which has no limit of its own;
 * with several users none makes it smaller for the others. The card is no larger than it says itself. */
static void recount_total(struct sched_device *device)
{
    const struct sched_member *best = NULL;
    bool measures = false;
    uint64_t total;

    lockd_each (const struct sched_member, member, &device->members, of_device) {
        if (best == NULL ||
            (!device->measure.several && member->report.measures != best->report.measures
                 ? member->report.measures
                 : member->report.total > best->report.total))
            best = member;
        measures = measures || member->report.measures;
    }
    total = best == NULL ? 0 : best->report.total;
    if (device->measure.several && device->measure.card_at != 0)
        total = sched_min(total, device->measure.card_total);
    if (total == 0)
        return;
    set_total(device, total, best);
    if (!measures) {
        device->measure.measured = false;
        device->measure.external = 0;
    }
}

void sched_measure_forget(struct sched_member *member, uint64_t now)
{
    struct sched_device *device = member->device;
    const bool several = device->measure.several,
               sure = member->report.echoed == member->sent.seq &&
                      (member->report.flags & GS_STATE_MOVING) == 0;
    const uint64_t coming = sched_min(member->report.demand, sched_member_hold(member)),
                   bytes = sched_max(member->report.resident, sure ? 0 : coming);

    device->measure.trust_changed |= sched_member_denied(member);
    if (device->measure.doubt.by == member)
        device->measure.doubt.by = NULL;
    device->measure.several = has_several_users(device);
    if (several && !device->measure.several)
        sched_denial_end(device, now);
    add_departed(device, &device->measure.departed.recent, bytes, now);
    recount_total(device);
}

/* --- the card --- */

/* Two answers in a row that external is more, or less, settle that. */
static void weigh_card(struct sched_device *device, uint64_t device_free, uint64_t now)
{
    struct sched_device_measure *measure = &device->measure;
    const uint64_t known = measure->external,
                   last = measure->card_denies ? measure->card_value : known;
    uint64_t least, most, value;

    if (is_settling(device, now))
        return;
    bound_external(device, device_free, now, &least, &most);
    value = sched_clamp(known, least, most);
    measure->measured = true;
    measure->beyond_total = 0;
    measure->card_value = value;
    measure->card_denies = value != known;
    if (value > known && last > known)
        measure->external = sched_min(last, value);
    else if (value < known && last < known)
        measure->external = sched_max(last, value);
    else
        return;
    measure->card_denies = false;
    measure->backed = true;
    measure->doubt.by = NULL;
}

void sched_measure_card(struct sched_device *device, const struct sched_card *card,
                        uint64_t now)
{
    lockd_each (struct sched_member, member, &device->members, of_device) {
        member->evidence.shown = card->shown(card->context, member->client->owner);
        if (member->report.loose != 0)
            sched_books_member(member, now);
    }
    device->measure.trust_changed |= device->measure.denied != 0;
    device->measure.card_at = now;
    device->measure.card_asked = card->asked_at;
    device->measure.card_total = card->total;
    recount_total(device);
    sched_denial_judge(device, sched_less(card->total, card->free), now);
    if (device->measure.several)
        weigh_card(device, card->free, now);
}

uint64_t sched_card_pause(const struct sched *sched, uint64_t now_ns)
{
    uint64_t pause = LOCKD_NEVER;

    lockd_each (const struct sched_device, device, &sched->devices, link) {
        if (!device->measure.several)
            continue;
        pause = sched_min(pause, !card_answers(device, now_ns) || device->measure.card_denies ||
                                         device->measure.doubted != 0 ||
                                         device->measure.asked_at != 0
                                     ? 2 * TELL_PAUSE
                                     : REPEAT);
    }
    return pause;
}

void sched_measure_report(struct sched_member *member, const struct gs_wire_state *state,
                          uint64_t now)
{
    struct sched_device *device = member->device;
    const bool measures = member->report.measures || state->device_free != UINT64_MAX;

    if (state->device_total != member->report.total || measures != member->report.measures) {
        member->report.total = state->device_total;
        member->report.measures = measures;
        recount_total(device);
    }
    memcpy(device->name, state->device_name, sizeof device->name);
    device->name[sizeof device->name - 1] = '\0';
    if (device->measure.card_at != 0 && !card_answers(device, now))
        sched_denial_end(device, now);
    if (state->device_free == UINT64_MAX)
        return;
    measure_external(member, state->device_free, now);
    sched_denial_found(member, state->device_free, now);
}

void sched_measure_came(struct sched_member *member, bool back, uint64_t now)
{
    struct sched_device *device = member->device;
    struct sched_departed *gone = &device->measure.departed;
    const uint64_t bytes = member->sent.given, recent = sched_min(bytes, gone->recent),
                   older = sched_min(bytes - recent, gone->older); /* that were expected */

    gone->recent -= recent;
    gone->older -= older;
    device->measure.several = has_several_users(device);
    if (card_answers(device, now))
        member->evidence.shown = 0; /* until it answers again */
    device->measure.trust_changed |= device->measure.denied != 0;
    device->measure.external = sched_less(device->measure.external, bytes - recent - older);
    if (!back || now - device->sched->created >= RETURN_WINDOW)
        return;
    device->measure.restarted = true;
    device->measure.doubt.by = NULL;
    if (device->measure.settle_until == 0)
        device->measure.settle_until = now + RESTART_SETTLE;
}

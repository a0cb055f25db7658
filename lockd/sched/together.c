/* SPDX-License-Identifier: Apache-2.0
 *
 * together.c: the programs of a gang stop together or not at all. A program may have submitted
 * a collective that spins on its device until all others have, too. If another is stopped
 * before that, the first never stops; and if the next program there needs its memory, all wait
 * for ever.
 *
 * So a turn that is to end is *closed* first: all are told to stop and keep their places and
 * memory. When all have stopped, the turn ends. When some have and others do not within
 * CLOSED_NS, the turn is *opened* again for a moment, in which the stopped programs catch up
 * with the others, and is closed anew. State: gang->closing.
 *
 * Closing helps only a gang all of whose programs can run. A gang that starts may compute on
 * one device while a program of it on another device has not come yet, or has not said yet how
 * much memory it needs. If the room there goes to a gang that starts in the same way, each
 * waits for the other, for good. So a gang of ranks is *forming* until it has run for
 * GRACE without a new program, a new device or more memory, and of the gangs that are
 * forming one computes at a time: it has the *forming turn*. The others wait, also where their
 * memory would fit. Gangs whose ranks are all there, on devices that are not the same, do not
 * wait for each other. A forming turn ends once the gang has formed, has nothing to do or is
 * gone, and while others wait after GRACE of running, or three times that without; the gang of a user
 * whose gangs had none for longest comes next. A gang that cannot stop keeps its turn for
 * 6 GRACE at most, as long as a gang waits for ranks that have not come. State: gang->forming, sched->forming.
 */
#include "lockd/sched/room.h"

#define CLOSED_NS (150 * NS_PER_MS)

static void touch_gang(struct sched_gang *gang)
{
    sched_each_of_gang (member, gang)
        sched_agenda_touch(member);
}

static void close_gang(struct sched_gang *gang, bool closed, uint64_t until)
{
    gang->closing.closed = closed;
    gang->closing.until = until;
    touch_gang(gang);
}

bool sched_together_stop(struct sched_gang *gang, struct sched_device *by, uint64_t now)
{
    struct sched_gang_closing *closing = &gang->closing;
    bool running = false, stopped = false; /* that could go on */

    if (gang->client_count < 2 || !gang->runs)
        return true;
    sched_each_of_gang (member, gang) {
        if ((member->report.flags & GS_STATE_RUNNING) != 0 ||
            (member->sent.flags & GS_TARGET_RUN) != 0 ||
            member->report.echoed < member->sent.stop_seq)
            running = true;
        else
            stopped |= (member->report.flags & GS_STATE_WANT) != 0;
    }
    if (!running || (closing->by != NULL && now - closing->began >= 6 * GRACE))
        return true;
    if (closing->by == NULL) {
        *closing =
            (struct sched_gang_closing){.by = by, .began = now, .open_ns = CLOSED_NS / 8};
        by->turns.closing++;
        close_gang(gang, true, now + CLOSED_NS);
    } else if (now >= closing->until && !closing->closed) {
        close_gang(gang, true, now + CLOSED_NS);
    } else if (now >= closing->until && stopped) {
        close_gang(gang, false, now + closing->open_ns);
        closing->open_ns = sched_min(2 * closing->open_ns, REPEAT);
    } else if (now >= closing->until) {
        closing->until = now + CLOSED_NS; /* all of them finish what they have submitted */
    }
    if (closing->by == by)
        closing->plan = by->turns.plans;
    sched_sooner(&by->stop_at, closing->until);
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

void sched_together_end_plan(struct sched_device *device)
{
    if (device->turns.closing == 0)
        return;
    lockd_each (struct sched_party, party, &device->turns.holders, turn.holder) {
        struct sched_gang *gang = party->gang;

        if (gang->closing.by == device && gang->closing.plan != device->turns.plans)
            sched_together_forget(gang);
    }
}

/* --- gangs that are forming --- */

static uint32_t user_of(const struct sched_gang *gang)
{
    return sched_party_first(sched_party_of(gang->parties.next, of_gang))->client->user;
}

static bool are_of_one_user(const struct sched_gang *a, const struct sched_gang *b)
{
    return a->party_count != 0 && b->party_count != 0 && user_of(a) == user_of(b);
}

void sched_together_outgrew(struct sched_gang *gang, uint64_t now)
{
    struct sched_gang_forming *forming = &gang->forming;
    uint64_t ranks = 0; /* the most that a program of it has said */

    sched_each_of_gang (member, gang)
        ranks = sched_max(ranks, member->client->ranks);
    if (ranks == 0) /* none of them is a rank */
        return;
    if (lockd_list_empty(&forming->link)) {
        forming->came_at = forming->counted_at = now;
        lockd_each (struct sched_gang, other, &gang->sched->forming.gangs, forming.link) {
            if (are_of_one_user(other, gang))
                forming->user_had_at = other->forming.user_had_at;
        }
        lockd_list_append(&gang->sched->forming.gangs, &forming->link);
    }
    forming->ranks = ranks > 1 ? (uint32_t)ranks : 0;
    forming->left = GRACE;
}

void sched_together_formed(struct sched_gang *gang)
{
    lockd_list_remove(&gang->forming.link);
    gang->forming = (struct sched_gang_forming){.turn = false};
}

void sched_together_came(struct sched_gang *gang, uint64_t now)
{
    sched_together_outgrew(gang, now);
    gang->forming.came_at = now;
}

static bool is_missing_ranks(const struct sched_gang *gang, uint64_t now)
{
    return gang->client_count < gang->forming.ranks && now - gang->forming.came_at < 6 * GRACE;
}

/* The gang has places, or may be computing still. stuck: or is in a kernel without an end. */
static bool has_or_computes(const struct sched_gang *gang, bool stuck)
{
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        if (party->turn.held ||
            (sched_party_busy(party) && (stuck || !party->books.counted_stuck)))
            return true;
    }
    return false;
}

static bool has_all_ranks(const struct sched_gang *gang)
{
    return gang->forming.ranks != 0 && gang->client_count >= gang->forming.ranks;
}

/* May each of them hold what the other one waits for? */
static bool are_rivals(const struct sched_gang *a, const struct sched_gang *b)
{
    if (a == b)
        return false;
    if (!has_all_ranks(a) || !has_all_ranks(b))
        return true;
    lockd_each (const struct sched_party, party, &a->parties, of_gang) {
        lockd_each (const struct sched_party, other, &b->parties, of_gang) {
            if (party->device == other->device)
                return true;
        }
    }
    return false;
}

static bool is_in_the_running(const struct sched_gang *gang)
{
    return gang->party_count != 0 && sched_gang_wants(gang) &&
           !sched_party_hopeless(sched_party_of(gang->parties.next, of_gang));
}

/* A gang of its user has begun or ended a forming turn. */
static void note_user(struct sched_gang *gang, uint64_t now)
{
    lockd_each (struct sched_gang, other, &gang->sched->forming.gangs, forming.link) {
        if (are_of_one_user(other, gang))
            other->forming.user_had_at = now;
    }
}

static void begin_turn(struct sched_gang *gang, uint64_t now)
{
    gang->forming.turn = true;
    gang->forming.begun = now;
    gang->forming.until = LOCKD_NEVER;
    note_user(gang, now);
}

static void end_turn(struct sched_gang *gang, uint64_t now)
{
    if (!gang->forming.turn)
        return;
    gang->forming.turn = gang->forming.over = false;
    gang->forming.had_at = now;
    note_user(gang, now);
}

/* --- the turns --- */

static void set_waits(struct sched_gang *gang, bool waits, bool awaited)
{
    if (gang->forming.waits == waits && gang->forming.awaited == awaited)
        return;
    gang->forming.waits = waits;
    gang->forming.awaited = awaited;
    sched_agenda_settle_gang(gang);
}

/* Do all of it run that want to, with all of their memory? */
static bool runs_whole(const struct sched_gang *gang)
{
    lockd_each (const struct sched_party, party, &gang->parties, of_gang) {
        if (sched_party_has(party, SCHED_HUNGRY))
            return false;
    }
    return gang->runs && gang->complete != 0 && gang->closing.by == NULL;
}

/* Its time without changes runs while all of it run. Returns whether it has formed. */
static bool count_forming(struct sched_gang *gang, uint64_t now)
{
    struct sched_gang_forming *forming = &gang->forming;

    if (runs_whole(gang))
        forming->left = sched_less(forming->left, now - forming->counted_at);
    forming->counted_at = now;
    if (forming->left != 0 || is_missing_ranks(gang, now))
        return false;
    end_turn(gang, now);
    set_waits(gang, false, false);
    sched_together_formed(gang);
    return true;
}

/* A gang that runs has the turn, however it came to run: a new daemon finds it so. A gang that
 * is stuck has it first, since it holds memory that it leaves only once all of it have run;
 * after a turn in vain it waits like others. */
static void look_at_turn(struct sched_gang *gang, bool settling, uint64_t now)
{
    struct sched_gang_forming *forming = &gang->forming;
    const bool has = has_or_computes(gang, false);

    if (!forming->turn && (!forming->waits || settling) && has_or_computes(gang, true))
        begin_turn(gang, now);
    if (!forming->turn)
        return;
    if (forming->until == LOCKD_NEVER && gang->runs && gang->complete != 0)
        forming->until = now + GRACE;
    if (!has && (!is_in_the_running(gang) || forming->over))
        end_turn(gang, now);
    else if (forming->awaited && !forming->over &&
             now >= sched_min(forming->until, forming->begun + 3 * GRACE)) {
        forming->over = true;
        sched_agenda_settle_gang(gang);
    }
}

/* Is `a` before `b`, of the gangs that wait for forming turns? */
static bool comes_before(const struct sched_gang *a, const struct sched_gang *b)
{
    const bool stuck = a->forming.had_at == 0 && has_or_computes(a, true);

    if (stuck != (b->forming.had_at == 0 && has_or_computes(b, true)))
        return stuck;
    if (a->forming.user_had_at != b->forming.user_had_at)
        return a->forming.user_had_at < b->forming.user_had_at;
    return a->forming.had_at < b->forming.had_at;
}

/* Is there a rival with a forming turn; or, turn false, a rival that may run and has none? */
static bool has_rival(const struct sched_gang *gang, bool turn)
{
    lockd_each (struct sched_gang, other, &gang->sched->forming.gangs, forming.link) {
        if (other->forming.turn == turn && (turn || is_in_the_running(other)) &&
            are_rivals(gang, other))
            return true;
    }
    return false;
}

/* An earlier daemon's gangs are still coming back: a gang that has not come may run. */
static bool is_settling(const struct sched *sched, uint64_t now)
{
    if (now - sched->created >= RETURN_WINDOW)
        return false;
    lockd_each (const struct sched_device, device, &sched->devices, link) {
        if (device->measure.restarted)
            return true;
    }
    return false;
}

/* The next gang gets its turn if it need not wait for another's; then gangs that keep neither
 * it nor each other waiting. */
static void give_turns(struct sched *sched, bool settling, uint64_t now)
{
    struct sched_gang *next = NULL; /* the first of those that wait for forming turns */

    lockd_each (struct sched_gang, gang, &sched->forming.gangs, forming.link) {
        if (!gang->forming.turn && is_in_the_running(gang) &&
            (next == NULL || comes_before(gang, next)))
            next = gang;
    }
    if (next != NULL && !settling && !has_rival(next, true))
        begin_turn(next, now);
    lockd_each (struct sched_gang, gang, &sched->forming.gangs, forming.link) {
        const struct sched_gang_forming *forming = &gang->forming;
        const bool kept = has_rival(gang, true) ||
                          (next != NULL && !next->forming.turn && are_rivals(gang, next));

        if (!kept && !settling && !forming->turn && is_in_the_running(gang))
            begin_turn(gang, now); /* now: its rivals, which come later, wait for it */
        set_waits(gang,
                  forming->over || /* what has stopped does not begin again */
                      (!forming->turn && (kept || (settling && is_in_the_running(gang)))),
                  forming->turn && has_rival(gang, false));
    }
}

void sched_together_let_next(struct sched *sched, uint64_t now)
{
    bool settling;

    sched->forming.at = LOCKD_NEVER;
    if (lockd_list_empty(&sched->forming.gangs))
        return;
    settling = is_settling(sched, now);
    lockd_each (struct sched_gang, gang, &sched->forming.gangs, forming.link) {
        if (!count_forming(gang, now))
            look_at_turn(gang, settling, now);
    }
    give_turns(sched, settling, now);
    if (settling)
        sched->forming.at = sched->created + RETURN_WINDOW;
    lockd_each (struct sched_gang, gang, &sched->forming.gangs, forming.link) {
        const struct sched_gang_forming *forming = &gang->forming;
        uint64_t look = LOCKD_NEVER; /* when time alone changes something */

        if (runs_whole(gang) && forming->left != 0)
            look = now + forming->left;
        if (is_missing_ranks(gang, now))
            sched_sooner(&look, forming->came_at + 6 * GRACE);
        if (forming->awaited && !forming->over)
            sched_sooner(&look, sched_min(forming->until, forming->begun + 3 * GRACE));
        sched_sooner(&sched->forming.at, sched_max(look, now + LOOK_AGAIN));
    }
}

bool sched_together_is_awaited(const struct sched_device *device, bool waits)
{
    if (lockd_list_empty(&device->sched->forming.gangs))
        return false;
    lockd_each (const struct sched_party, party, &device->parties, of_device) {
        const struct sched_gang_forming *forming = &party->gang->forming;

        if (forming->awaited || (waits && forming->waits))
            return true;
    }
    return false;
}

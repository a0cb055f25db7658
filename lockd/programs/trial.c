/* SPDX-License-Identifier: Apache-2.0
 *
 * trial.c: owns trials. A program *hangs* when it was asked to stop and has not stopped for a
 * while, or when it had turns and made no call in them. A *mate* shares a hint with it, is on a
 * device that the hung program is not on, and waits or hangs itself. One mate for each other device
 * makes a combination. The mates nearest in the order of arrival come first, since the ranks of a
 * job start together. A set that a trial has made joins another trial as a whole; a set that
 * evidence has made is complete.
 *
 * Every combination gets TRIAL_NS at most, so each of them is tried in bounded time. Once all have
 * been tried, the pause between two trials of that program grows.
 *
 * A trial can be wrong: the program that the hung program waited for may have run beside it by chance.
 * Such sets would grow until they are too large for a device, where a set cannot run together. So
 * what trials have added to a set that is too large leaves it: the rest may be a job that must run
 * together. And a set that only trials have made falls apart if it hangs and every combination has
 * been tried; then the search begins anew.
 */
#include "lockd/programs/trial.h"

#include "lockd/protocol/names.h"

#include <stdio.h>
#include <stdlib.h>

#define LOOK_NS    1000000000ull
#define STUCK_NS   3000000000ull /* after it was first seen not to stop */
#define TURNS_MOST 3             /* turns without a call */
#define TRIAL_NS   20000000000ull
#define PAUSE_MIN  5000000000ull
#define PAUSE_MAX  60000000000ull
#define DEVICES    64
#define MATES_MOST 8 /* of one device, the nearest */

static bool shares_key(const struct kin_program *a, const struct kin_program *b, uint32_t kind)
{
    for (uint32_t i = 0; i < a->count; i++) {
        for (uint32_t j = 0; a->keys[i].kind == kind && j < b->count; j++) {
            if (b->keys[j].kind == kind && b->keys[j].key == a->keys[i].key)
                return true;
        }
    }
    return false;
}

/* --- who hangs --- */

/* To be called at each look. */
static void watch_program(struct kin_program *program, const struct sched_progress *progress,
                          uint64_t now)
{
    struct kin_watch *watch = &program->watch;

    if (progress->calls != watch->calls || (!progress->runs && !progress->waits)) {
        watch->calls = progress->calls;
        watch->turns = progress->turns;
        watch->stuck_since = 0;
        watch->tries = 0;
        watch->pause = PAUSE_MIN;
    }
    if (!progress->stuck)
        watch->stuck_since = 0;
    else if (watch->stuck_since == 0)
        watch->stuck_since = now;
}

/* Evidence or the user has told whose work the program waits for. */
static bool is_eligible(const struct kin_program *program)
{
    return !program->named && (program->set == 0 || program->why == GS_KIN_TRIED);
}

static bool is_hung(const struct kin_program *program, const struct sched_progress *progress,
                    uint64_t now)
{
    const struct kin_watch *watch = &program->watch;

    if (!is_eligible(program) || program->count == 0 || !progress->leases)
        return false;
    return (watch->stuck_since != 0 && now - watch->stuck_since >= STUCK_NS) ||
           progress->turns >= watch->turns + TURNS_MOST;
}

/* --- combinations --- */

struct mates {
    struct kin_program *of[DEVICES][MATES_MOST];
    unsigned count[DEVICES];
};

static unsigned first_bit(uint64_t devices)
{
    return (unsigned)__builtin_ctzll(devices);
}

/* The programs with that hint for which the hung program may wait, the nearest first. */
static void find_mates(struct kin *kin, struct kin_program *hung,
                       const struct sched_progress *own, uint32_t kind, uint64_t now,
                       struct mates *mates)
{
    struct lockd_list *before = hung->link.prev, *after = hung->link.next;

    *mates = (struct mates){.count = {0}};
    for (bool forward = true; before != &kin->programs || after != &kin->programs;
         forward = !forward) {
        struct kin_program *other;
        struct sched_progress progress;
        unsigned device;

        if (forward ? after == &kin->programs : before == &kin->programs)
            continue;
        other = kin_program_of(forward ? after : before);
        if (forward)
            after = after->next;
        else
            before = before->prev;
        if (!is_eligible(other) || other->trial != 0 || !shares_key(hung, other, kind) ||
            (hung->set != 0 && hung->set == other->set) ||
            !lockd_identity_same(hung->identity, other->identity))
            continue;
        progress = sched_client_progress(other->client, now);
        if ((progress.devices & ~own->devices) == 0 ||
            !(progress.waits || is_hung(other, &progress, now)))
            continue;
        device = first_bit(progress.devices & ~own->devices);
        if (mates->count[device] < MATES_MOST)
            mates->of[device][mates->count[device]++] = other;
    }
}

/* The combination of that number: for each device one of its mates, or none. Returns how many
 * mates are chosen; 0: there are no more combinations. */
static unsigned choose_mates(const struct mates *mates, uint32_t number,
                             struct kin_program **chosen)
{
    unsigned count = 0;

    for (unsigned device = 0; device < DEVICES; device++) {
        const unsigned choices = mates->count[device] + 1;
        unsigned choice;

        if (choices == 1)
            continue;
        choice = number % choices;
        number /= choices;
        if (choice < mates->count[device])
            chosen[count++] = mates->of[device][choice];
    }
    return number == 0 ? count : 0;
}

/* The number of the combination counts through the hints, the strongest first. */
static unsigned next_combination(struct kin *kin, struct kin_program *hung,
                                 const struct sched_progress *own, uint64_t now,
                                 struct kin_program **chosen, uint32_t *why)
{
    uint32_t number = hung->watch.tries;

    for (uint32_t kind = GS_KIN_HINT_FIRST; kind <= GS_KIN_HINT_LAST; kind++) {
        struct mates mates;
        uint32_t all = 1;
        unsigned count;

        find_mates(kin, hung, own, kind, now, &mates);
        for (unsigned device = 0; device < DEVICES && all < UINT32_MAX / (MATES_MOST + 1);
             device++)
            all *= mates.count[device] + 1;
        all--; /* the last combination is without mates */
        if (number >= all) {
            number -= all;
            continue;
        }
        count = choose_mates(&mates, number, chosen);
        *why = kind;
        if (count != 0)
            return count;
        number = 0;
    }
    return 0;
}

/* --- a trial --- */

static void say_begun(struct kin *kin, const struct kin_program *hung, unsigned count,
                      uint32_t why)
{
    char text[192];

    if (kin->say == NULL)
        return;
    snprintf(text, sizeof text,
             "no progress: has its turns together with %u waiting program%s of the same %s, to "
             "see if that helps (GPUSHARE_GROUP makes it sure)",
             count, count == 1 ? "" : "s", lockd_kin_name(why));
    kin->say(kin->context, hung->owner, text);
}

static void say_helped(struct kin *kin, const struct kin_program *hung)
{
    if (kin->say != NULL)
        kin->say(kin->context, hung->owner,
                 "it went on: these programs are one gang from now on");
}

/* Adds the program and its whole set to the trial. */
static void enter_trial(struct kin *kin, struct kin_program *program, uint64_t set,
                        uint64_t now)
{
    lockd_each (struct kin_program, each, &kin->programs, link) {
        if (each != program && (program->set == 0 || each->set != program->set))
            continue;
        each->trial = set;
        kin_tell(each, now);
    }
}

static void begin_trial(struct kin *kin, struct kin_program *hung, struct kin_program **chosen,
                        unsigned count, uint32_t why, uint64_t turns, uint64_t now)
{
    struct kin_trial *trial = calloc(1, sizeof *trial);

    if (trial == NULL)
        return;
    trial->set = ++kin->next_set;
    trial->of = hung;
    trial->calls = hung->watch.calls;
    trial->turns = turns;
    trial->until = now + TRIAL_NS;
    lockd_list_append(&kin->trials, &trial->link);
    say_begun(kin, hung, count, why);
    enter_trial(kin, hung, trial->set, now);
    for (unsigned i = 0; i < count; i++)
        enter_trial(kin, chosen[i], trial->set, now);
}

/* The combination that helped becomes a set, with the programs that have joined a member of it meanwhile.
 * Nothing changes for the scheduler but that. */
static void end_trial(struct kin *kin, struct kin_trial *trial, bool helped, uint64_t now)
{
    lockd_list_remove(&trial->link);
    lockd_each (struct kin_program, each, &kin->programs, link) {
        if (each->trial != trial->set)
            continue;
        each->trial = 0;
        if (helped && each->set == 0) {
            each->why = GS_KIN_TRIED;
            each->set = trial->set;
        } else if (helped && each->set != trial->set) {
            kin_rename_set(kin, each->set, trial->set, now);
        }
        kin_tell(each, now);
    }
    if (helped)
        say_helped(kin, trial->of);
    free(trial);
}

/* A turn begins only when all programs of the trial have their places, so calls after the
 * beginning of such a turn were made while all of them ran. */
static void tend_trial(struct kin *kin, struct kin_trial *trial, uint64_t now)
{
    struct sched_progress progress;

    if (trial->of == NULL) {
        end_trial(kin, trial, false, now);
        return;
    }
    progress = sched_client_progress(trial->of->client, now);
    if (progress.calls != trial->calls) {
        end_trial(kin, trial, progress.turns > trial->turns && !progress.apart, now);
    } else if (now >= trial->until || progress.turns >= trial->turns + TURNS_MOST) {
        trial->of->watch.tries++;
        end_trial(kin, trial, false, now);
    }
}

static void look_at_program(struct kin *kin, struct kin_program *program, uint64_t now)
{
    struct kin_program *chosen[DEVICES];
    const struct sched_progress progress = sched_client_progress(program->client, now);
    unsigned count;
    uint32_t why = 0;

    watch_program(program, &progress, now);
    if (progress.apart && program->trial == 0 && program->why == GS_KIN_TRIED)
        kin_forget_tried(kin, program->set, now);
    if (program->trial != 0 || now < program->watch.try_at || !is_hung(program, &progress, now))
        return;
    count = next_combination(kin, program, &progress, now, chosen, &why);
    if (count != 0) {
        begin_trial(kin, program, chosen, count, why, progress.turns, now);
        return;
    }
    program->watch.try_at = now + program->watch.pause;
    program->watch.pause =
        program->watch.pause * 2 < PAUSE_MAX ? program->watch.pause * 2 : PAUSE_MAX;
    program->watch.tries = 0;
    if (program->set != 0)
        kin_forget_tried(kin, program->set, now);
}

uint64_t kin_tend(struct kin *kin, uint64_t now_ns)
{
    if (kin->programs.next == kin->programs.prev && lockd_list_empty(&kin->trials))
        return LOCKD_NEVER; /* fewer than two */
    if (now_ns < kin->look_at)
        return kin->look_at;
    kin->look_at = now_ns + LOOK_NS;
    lockd_each (struct kin_program, program, &kin->programs, link)
        look_at_program(kin, program, now_ns);
    lockd_each (struct kin_trial, trial, &kin->trials, link)
        tend_trial(kin, trial, now_ns);
    return kin->look_at;
}

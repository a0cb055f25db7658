/* SPDX-License-Identifier: Apache-2.0
 *
 * kin.c: owns programs, their keys and the sets that keys make of them. A set falls apart only when
 * one of its programs takes a key back, or when a trial made it, or added to it, and was
 * wrong: programs that were one job stay that job. There are few keys, and few programs of
 * one user, so each new key is compared with all of them.
 */
#include "lockd/programs/kin.h"
#include "lockd/protocol/wire_check.h"

#include <stdio.h>
#include <stdlib.h>

#define DIVIDED_MOST 32 /* programs of a set that may fall apart */

void kin_init(struct kin *kin, kin_say *say, void *context)
{
    *kin = (struct kin){.say = say, .context = context};
}

void kin_deinit(struct kin *kin)
{
    lockd_each (struct kin_trial, trial, &kin->trials, link)
        free(trial);
    lockd_each (struct kin_program, program, &kin->programs, link)
        free(program);
}

struct kin_program *kin_came(struct kin *kin, struct sched_client *client, void *owner,
                             const struct lockd_identity *identity, bool named)
{
    struct kin_program *program = calloc(1, sizeof *program);

    if (program == NULL)
        return NULL;
    program->client = client;
    program->owner = owner;
    program->identity = identity;
    program->named = named;
    lockd_list_append(&kin->programs, &program->link);
    return program;
}

void kin_gone(struct kin *kin, struct kin_program *program)
{
    if (program == NULL)
        return;
    lockd_list_remove(&program->link);
    lockd_each (struct kin_trial, trial, &kin->trials, link) {
        if (trial->of == program)
            trial->of = NULL;
    }
    free(program);
}

/* Tells the scheduler the program's set. */
static void kin_tell(struct kin_program *program, uint64_t now_ns)
{
    sched_kin(program->client, kin_set_of(program), now_ns);
}

/* Moves all programs of one set into the other. */
static void kin_rename_set(struct kin *kin, uint64_t from, uint64_t to, uint64_t now_ns)
{
    lockd_each (struct kin_program, program, &kin->programs, link) {
        if (program->set != from)
            continue;
        program->set = to;
        kin_tell(program, now_ns);
    }
}

void kin_join(struct kin *kin, struct kin_program *a, struct kin_program *b, uint32_t why,
              uint64_t now_ns)
{
    struct kin_program *both[] = {a, b};
    uint64_t set = a->set != 0 ? a->set : b->set;

    if (a == b || a->named || b->named || !lockd_identity_same(a->identity, b->identity) ||
        (a->set != 0 && a->set == b->set))
        return;
    if (a->set != 0 && b->set != 0) {
        kin_rename_set(kin, b->set, a->set, now_ns);
        return;
    }
    if (set == 0)
        set = ++kin->next_set;
    for (int i = 0; i < 2; i++) {
        if (both[i]->set == set)
            continue;
        both[i]->set = set;
        both[i]->why = why;
        kin_tell(both[i], now_ns);
    }
}

static bool has_key(const struct kin_program *program, uint64_t key, uint32_t kind)
{
    for (uint32_t i = 0; i < program->count; i++) {
        if (program->keys[i].key == key && program->keys[i].kind == kind)
            return true;
    }
    return false;
}

void kin_learn(struct kin *kin, struct kin_program *program, uint64_t key, uint32_t kind,
               uint32_t ranks, uint64_t now_ns)
{
    if (program->named || program->count == GS_KIN_MOST || has_key(program, key, kind))
        return;
    program->keys[program->count++] = (struct kin_key){.key = key, .kind = kind};
    if (kind >= GS_KIN_MASTER && kind <= GS_KIN_NCCL)
        sched_rank(program->client, ranks, now_ns);
    if (kind >= GS_KIN_HINT_FIRST)
        return;
    lockd_each (struct kin_program, other, &kin->programs, link) {
        if (other != program && has_key(other, key, kind))
            kin_join(kin, program, other, kind, now_ns);
    }
}

/* Whether the set is small enough to be read again and again. tried: also if a trial has shown
 * that it is one job. */
static bool is_divisible(const struct kin *kin, uint64_t set, bool tried)
{
    unsigned count = 0;

    lockd_each (const struct kin_program, program, &kin->programs, link) {
        if (program->set != set)
            continue;
        if ((program->why == GS_KIN_TRIED && !tried) || ++count > DIVIDED_MOST)
            return false;
    }
    return true;
}

/* The kind of evidence that both have in common. GS_KIN_NONE: there is none. */
static uint32_t common_evidence(const struct kin_program *a, const struct kin_program *b)
{
    for (uint32_t i = 0; i < a->count; i++)
        if (a->keys[i].kind < GS_KIN_HINT_FIRST && has_key(b, a->keys[i].key, a->keys[i].kind))
            return a->keys[i].kind;
    return GS_KIN_NONE;
}

/* Moves the program, and all of `from` that its evidence leads to, into the set `to`. Does not
 * tell the scheduler. Returns how many programs moved. */
static unsigned gather_set(struct kin *kin, struct kin_program *program, uint64_t from,
                           uint64_t to)
{
    struct kin_program *gathered[DIVIDED_MOST] = {program};
    unsigned count = 1;

    program->set = to;
    for (unsigned i = 0; i < count; i++)
        lockd_each (struct kin_program, each, &kin->programs, link) {
            const uint32_t why =
                each->set == from ? common_evidence(each, gathered[i]) : GS_KIN_NONE;

            if (why == GS_KIN_NONE || count == DIVIDED_MOST)
                continue;
            each->set = to;
            each->why = gathered[i]->why = why;
            gathered[count++] = each;
        }
    return count;
}

/* The set falls apart into the sets that keys make, if it is divisible. A program without evidence in
 * common with others is in no set. The first of the others keep the number. */
static void divide_set(struct kin *kin, uint64_t set, bool tried, uint64_t now_ns)
{
    const uint64_t marked = UINT64_MAX; /* no set has that number */
    uint64_t keeps = set, first = kin->next_set;

    if (!is_divisible(kin, set, tried))
        return;
    lockd_each (struct kin_program, program, &kin->programs, link)
        if (program->set == set)
            program->set = marked;
    lockd_each (struct kin_program, program, &kin->programs, link) {
        const uint64_t to = keeps != 0 ? keeps : kin->next_set + 1;

        if (program->set != marked)
            continue;
        if (gather_set(kin, program, marked, to) == 1) {
            program->set = 0;
            program->why = GS_KIN_NONE;
            kin_tell(program, now_ns);
        } else {
            kin->next_set += keeps == 0;
            keeps = 0;
        }
    }
    lockd_each (struct kin_program, program, &kin->programs, link)
        if (program->set > first)
            kin_tell(program, now_ns);
}

void kin_unlearn(struct kin *kin, struct kin_program *program, uint64_t key, uint32_t kind,
                 uint64_t now_ns)
{
    uint32_t i = 0;

    while (i < program->count && (program->keys[i].key != key || program->keys[i].kind != kind))
        i++;
    if (i == program->count)
        return;
    program->keys[i] = program->keys[--program->count];
    if (kind < GS_KIN_HINT_FIRST && program->set != 0)
        divide_set(kin, program->set, false, now_ns);
}

/* Owns trials. A program *hangs* when it was asked to stop and has not stopped for a
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
 * been tried; then the search begins anew. */

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
        device = (unsigned)__builtin_ctzll(progress.devices & ~own->devices);
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
    char text[192];

    if (trial == NULL)
        return;
    trial->set = ++kin->next_set;
    trial->of = hung;
    trial->calls = hung->watch.calls;
    trial->turns = turns;
    trial->until = now + TRIAL_NS;
    lockd_list_append(&kin->trials, &trial->link);
    snprintf(text, sizeof text,
             "no progress: has its turns together with %u waiting program%s of the same %s, to "
             "see if that helps (GPUSHARE_GROUP makes it sure)",
             count, count == 1 ? "" : "s", lockd_kin_name(why));
    if (kin->say != NULL)
        kin->say(kin->context, hung->owner, text);
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
    if (helped && kin->say != NULL)
        kin->say(kin->context, trial->of->owner,
                 "it went on: these programs are one gang from now on");
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
        divide_set(kin, program->set, true, now); /* the trial was wrong about it */
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
        divide_set(kin, program->set, true, now);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * kin.c: owns programs, their keys and the sets that keys make of them. A set falls apart only when
 * one of its programs takes a key back, or when a trial made it, or added to it, and was wrong
 * (trial.c): programs that were one job stay that job. There are few keys, and few programs of
 * one user, so each new key is compared with all of them.
 */
#include "lockd/programs/kin.h"

#include <stdlib.h>

#define DIVIDED_MOST 32 /* programs of a set that may fall apart */

void kin_init(struct kin *kin, kin_say *say, void *context)
{
    *kin = (struct kin){.say = say, .context = context};
    lockd_list_init(&kin->programs);
    lockd_list_init(&kin->trials);
}

void kin_deinit(struct kin *kin)
{
    while (!lockd_list_empty(&kin->trials)) {
        struct kin_trial *trial = lockd_entry(kin->trials.next, struct kin_trial, link);

        lockd_list_remove(&trial->link);
        free(trial);
    }
    while (!lockd_list_empty(&kin->programs)) {
        struct kin_program *program = kin_program_of(kin->programs.next);

        lockd_list_remove(&program->link);
        free(program);
    }
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

void kin_tell(struct kin_program *program, uint64_t now_ns)
{
    sched_kin(program->client, kin_set_of(program), now_ns);
}

void kin_rename_set(struct kin *kin, uint64_t from, uint64_t to, uint64_t now_ns)
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

static bool forget_key(struct kin_program *program, uint64_t key, uint32_t kind)
{
    for (uint32_t i = 0; i < program->count; i++)
        if (program->keys[i].key == key && program->keys[i].kind == kind) {
            program->keys[i] = program->keys[--program->count];
            return true;
        }
    return false;
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

/* A program without evidence in common with others is in no set. The first of the others keep
 * the number. */
static void divide_set(struct kin *kin, uint64_t set, uint64_t now_ns)
{
    const uint64_t marked = UINT64_MAX; /* no set has that number */
    uint64_t keeps = set, first = kin->next_set;

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
    if (forget_key(program, key, kind) && kind < GS_KIN_HINT_FIRST && program->set != 0 &&
        is_divisible(kin, program->set, false))
        divide_set(kin, program->set, now_ns);
}

void kin_forget_tried(struct kin *kin, uint64_t set, uint64_t now_ns)
{
    if (is_divisible(kin, set, true))
        divide_set(kin, set, now_ns);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c: owns cuCheckpointProcess*: another process on the same cards is locked (its
 * calls wait, what it has submitted finishes), its memory is taken off the cards and put back,
 * onto the same cards or others.
 *
 * All of it is done on the cards' books by the caller: the bytes of a process lie in its own
 * memory file (memory.c) and stay there. A process is in the same state on all its cards; that
 * on the lowest of them counts. Invariants: used is 0 while a process is checkpointed, and saved
 * what comes back; a state is written under its card's lock. A caller that is killed within a
 * call leaves books with which the next call does the same again. Threads: any, under sim.lock
 * of the caller; the process that is locked looks at its state in sim_begin(), and follows a
 * restore onto other cards there.
 */
#include <errno.h>
#include <string.h>
#include "tests/simcuda/sim.h"

static struct sim_client *entry_of(struct sim_card *card, int pid)
{
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (card->client[i].pid == pid)
            return &card->client[i];
    }
    return NULL;
}

/* The next card, from *device on, that the process is on; NULL behind the last. */
static struct sim_client *next_entry(int pid, unsigned *device)
{
    for (; *device < sim.device_count; (*device)++) {
        struct sim_client *entry = entry_of(sim.device[*device].card, pid);

        if (entry)
            return entry;
    }
    return NULL;
}

static CUresult state_of(int pid, unsigned *state)
{
    unsigned device = 0;
    const struct sim_client *entry =
        pid > 0 && pid != sim.pid ? next_entry(pid, &device) : NULL;

    if (!entry)
        return CUDA_ERROR_INVALID_VALUE;
    *state = __atomic_load_n(&entry->state, __ATOMIC_SEQ_CST);
    return CUDA_SUCCESS;
}

/* On every card that the process is on. forget: what a checkpoint that was not finished has taken
 * off the card counts there again. */
static void set_state(int pid, unsigned state, bool forget)
{
    for (unsigned device = 0; next_entry(pid, &device); device++) {
        struct sim_card *card = sim.device[device].card;
        struct sim_client *mine;

        sim_card_lock(card);
        mine = entry_of(card, pid);
        if (mine && forget)
            mine->saved = 0;
        if (mine)
            __atomic_store_n(&mine->state, state, __ATOMIC_SEQ_CST);
        sim_card_unlock(card);
    }
}

/* No call is inside and nothing that was submitted is unfinished. */
static bool is_quiet(int pid)
{
    const struct sim_client *entry;
    uint32_t busy = 0;

    for (unsigned device = 0; (entry = next_entry(pid, &device)) != NULL; device++)
        busy |= __atomic_load_n(&entry->inside, __ATOMIC_SEQ_CST) |
                __atomic_load_n(&entry->working, __ATOMIC_SEQ_CST);
    return busy == 0;
}

/* ... as it is at last, also when the process ends meanwhile. */
static CUresult await_quiet(int pid, uint64_t until)
{
    unsigned state;

    while (!is_quiet(pid)) {
        if (sim_now_ns() > until)
            return CUDA_ERROR_NOT_READY;
        sim_sleep_until(sim_now_ns() + 1000000);
        for (unsigned i = 0; i < sim.device_count; i++)
            sim_card_free(sim.device[i].card); /* which removes the dead */
    }
    return state_of(pid, &state);
}

static bool is_zero(const void *bytes, size_t size)
{
    const unsigned char *at = bytes;

    for (size_t i = 0; i < size; i++) {
        if (at[i])
            return false;
    }
    return true;
}

static CUresult lock_process(int pid, const CUcheckpointLockArgs *args)
{
    const uint64_t until =
        args && args->timeoutMs ? sim_now_ns() + args->timeoutMs * 1000000ull : UINT64_MAX;
    unsigned state;
    CUresult result = state_of(pid, &state);

    if (args && (args->reserved0 || !is_zero(args->reserved1, sizeof args->reserved1)))
        return CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_RUNNING)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    set_state(pid, CU_PROCESS_STATE_LOCKED, true);
    result = await_quiet(pid, until);
    if (result == CUDA_ERROR_NOT_READY)
        set_state(pid, CU_PROCESS_STATE_RUNNING, false);
    return result;
}

/* Memory of several processes is none that can be set aside (before driver 610). */
static bool shares_memory(int pid)
{
    const struct sim_client *entry;
    uint32_t shared = 0;

    for (unsigned device = 0; (entry = next_entry(pid, &device)) != NULL; device++)
        shared |= __atomic_load_n(&entry->shared, __ATOMIC_SEQ_CST);
    return shared != 0;
}

/* A process that made no call since the last restore has not followed it: the next one counts
 * from there. */
static void note_not_followed(int pid)
{
    unsigned device = 0;
    const struct sim_client *lowest = next_entry(pid, &device);
    struct sim_client *entry;
    const bool followed =
        lowest == NULL || __atomic_load_n(&lowest->moves, __ATOMIC_SEQ_CST) ==
                              __atomic_load_n(&lowest->followed, __ATOMIC_SEQ_CST);
    for (device = 0; (entry = next_entry(pid, &device)) != NULL; device++)
        entry->before = followed ? 0 : entry->onto;
}

static CUresult set_aside(int pid, const CUcheckpointCheckpointArgs *args)
{
    unsigned state;
    CUresult result = state_of(pid, &state);

    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_LOCKED)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    if (shares_memory(pid))
        return CUDA_ERROR_NOT_SUPPORTED;
    result =
        await_quiet(pid, UINT64_MAX); /* who locked it may have been killed before it was */
    if (result)
        return result;
    note_not_followed(pid);
    for (unsigned device = 0; next_entry(pid, &device); device++) {
        struct sim_card *card = sim.device[device].card;
        struct sim_client *entry;
        uint64_t bytes = 0;

        sim_card_lock(card);
        entry = entry_of(card, pid);
        if (entry) {
            bytes = entry->used;
            entry->saved += entry->used;
            entry->used = 0;
        }
        sim_card_unlock(card);
        sim_sleep_until(sim_card_book_bus(card, SIM_TO_HOST, bytes));
    }
    set_state(pid, CU_PROCESS_STATE_CHECKPOINTED, false);
    return CUDA_SUCCESS;
}

/* Which card takes the place of each of a process's, and the bytes that come onto it. */
struct plan {
    unsigned cards;
    unsigned from[SIM_CARDS_MAX]; /* numbers in sim.device */
    unsigned onto[SIM_CARDS_MAX];
    uint64_t bytes[SIM_CARDS_MAX];
};

static bool is_uuid_of(unsigned device, const CUuuid *uuid)
{
    return memcmp(sim.device[device].card->uuid, uuid->bytes, sizeof uuid->bytes) == 0;
}

/* Each of the process's cards is the old one of one pair, and the new one of one. */
static bool plan_pairs(struct plan *plan, const CUcheckpointRestoreArgs *args)
{
    unsigned found = 0;

    for (unsigned i = 0; i < plan->cards && args->gpuPairsCount == plan->cards; i++)
        for (unsigned j = 0; j < args->gpuPairsCount; j++)
            for (unsigned k = 0; k < plan->cards; k++) {
                if (!is_uuid_of(plan->from[i], &args->gpuPairs[j].oldUuid) ||
                    !is_uuid_of(plan->from[k], &args->gpuPairs[j].newUuid))
                    continue;
                plan->onto[i] = plan->from[k];
                found++;
            }
    for (unsigned i = 0; i < plan->cards; i++)
        for (unsigned j = 0; j < i; j++)
            if (plan->onto[i] == plan->onto[j])
                return false;
    return found == plan->cards;
}

static CUresult make_plan(int pid, const CUcheckpointRestoreArgs *args, struct plan *plan)
{
    const struct sim_client *entry;
    uint32_t managed = 0;

    plan->cards = 0;
    for (unsigned device = 0; (entry = next_entry(pid, &device)) != NULL; device++) {
        managed |= __atomic_load_n(&entry->managed, __ATOMIC_SEQ_CST);
        plan->from[plan->cards] = plan->onto[plan->cards] = device;
        plan->bytes[plan->cards++] = entry->saved;
    }
    if (args == NULL || args->gpuPairsCount == 0)
        return CUDA_SUCCESS;
    if (sim.device[0].card->properties.driver_version < 13000)
        return CUDA_ERROR_INVALID_VALUE; /* the field was reserved */
    if (args->gpuPairs == NULL || !plan_pairs(plan, args))
        return CUDA_ERROR_INVALID_VALUE;
    return managed != 0 ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* So many bytes of the process on the card, where there is room for them. */
static CUresult take_again(struct sim_card *card, int pid, uint64_t bytes)
{
    const uint64_t left = sim_card_free(card);
    CUresult result = CUDA_SUCCESS;
    struct sim_client *entry;

    sim_card_lock(card);
    entry = entry_of(card, pid);
    if (!entry)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (bytes > left + entry->used)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        entry->used = bytes;
    sim_card_unlock(card);
    return result;
}

static CUresult carry_out(int pid, const struct plan *plan)
{
    CUresult result = CUDA_SUCCESS;

    for (unsigned i = 0; i < plan->cards && !result; i++) {
        struct sim_card *card = sim.device[plan->onto[i]].card;

        result = take_again(card, pid, plan->bytes[i]);
        if (!result)
            sim_sleep_until(sim_card_book_bus(card, SIM_TO_DEVICE, plan->bytes[i]));
    }
    for (unsigned i = 0; i < plan->cards && result; i++)
        take_again(sim.device[plan->onto[i]].card, pid, 0);
    return result;
}

/* The card, by index, onto which the plan brings what is on that one. */
static uint32_t onto_from(const struct plan *plan, uint32_t index)
{
    for (unsigned i = 0; i < plan->cards; i++)
        if (sim.device[plan->from[i]].card->index == index)
            return sim.device[plan->onto[i]].card->index;
    return index;
}

/* What the process itself does when it goes on (sim_follow_move). */
static void tell_process(int pid, const struct plan *plan)
{
    for (unsigned i = 0; i < plan->cards; i++) {
        struct sim_card *card = sim.device[plan->from[i]].card;
        struct sim_client *entry;

        sim_card_lock(card);
        entry = entry_of(card, pid);
        if (entry) {
            entry->onto = 1 + onto_from(plan, entry->before ? entry->before - 1 : card->index);
            __atomic_fetch_add(&entry->moves, 1, __ATOMIC_SEQ_CST);
        }
        sim_card_unlock(card);
    }
}

static CUresult bring_back(int pid, const CUcheckpointRestoreArgs *args)
{
    const size_t reserved =
        offsetof(CUcheckpointRestoreArgs, gpuPairsCount) + sizeof args->gpuPairsCount;
    struct plan plan;
    unsigned state;
    CUresult result = state_of(pid, &state);

    /* headers name what is reserved in different ways */
    if (args && !is_zero((const char *)args + reserved, sizeof *args - reserved))
        return CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_CHECKPOINTED)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    result = make_plan(pid, args, &plan);
    result = result ? result : carry_out(pid, &plan);
    if (result)
        return result;
    tell_process(pid, &plan);
    set_state(pid, CU_PROCESS_STATE_LOCKED, false);
    return CUDA_SUCCESS;
}

/* The slot that has that card; the old ones are looked at while sim.device changes. */
static const struct sim_device *slot_of(const struct sim_device *before, unsigned index)
{
    for (unsigned i = 0; i < sim.device_count; i++)
        if (before[i].card->index == index)
            return &before[i];
    return NULL;
}

void sim_follow_move(void)
{
    const uint32_t moves = __atomic_load_n(&sim.own->moves, __ATOMIC_SEQ_CST);
    struct sim_device before[SIM_CARDS_MAX];

    if (moves == sim.moves)
        return;
    sim.moves = moves;
    __atomic_store_n(&sim.own->followed, moves, __ATOMIC_SEQ_CST);
    memcpy(before, sim.device, sizeof before);
    for (unsigned i = 0; i < sim.device_count; i++) {
        const uint32_t onto = before[i].card->client[before[i].client].onto;
        const struct sim_device *slot = onto ? slot_of(before, onto - 1) : NULL;

        if (!slot)
            continue;
        sim.device[i].card = slot->card;
        sim.device[i].client = slot->client;
    }
}

static CUresult unlock_process(int pid, const CUcheckpointUnlockArgs *args)
{
    unsigned state;
    const CUresult result = state_of(pid, &state);

    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_LOCKED)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    set_state(pid, CU_PROCESS_STATE_RUNNING, false);
    return CUDA_SUCCESS;
}

static CUresult tell_state(int pid, CUprocessState *state)
{
    unsigned now;
    const CUresult result = state ? state_of(pid, &now) : CUDA_ERROR_INVALID_VALUE;

    if (!result)
        *state = (CUprocessState)now;
    return result;
}

SIM_API(cuCheckpointProcessLock, (int pid, CUcheckpointLockArgs *args), SIM_INIT,
        lock_process(pid, args))
SIM_API(cuCheckpointProcessCheckpoint, (int pid, CUcheckpointCheckpointArgs *args), SIM_INIT,
        set_aside(pid, args))
SIM_API(cuCheckpointProcessRestore, (int pid, CUcheckpointRestoreArgs *args), SIM_INIT,
        bring_back(pid, args))
SIM_API(cuCheckpointProcessUnlock, (int pid, CUcheckpointUnlockArgs *args), SIM_INIT,
        unlock_process(pid, args))
SIM_API(cuCheckpointProcessGetState, (int pid, CUprocessState *state), SIM_INIT,
        tell_state(pid, state))

/* SPDX-License-Identifier: Apache-2.0
 *
 * checkpoint.c: owns cuCheckpointProcess*: another process on the same cards is locked (its
 * calls wait, what it has submitted finishes), its memory is taken off the cards and put back.
 *
 * All of it is done on the cards' books by the caller: the bytes of a process lie in its own
 * memory file (memory.c) and stay there. A process is in the same state on all its cards.
 * Invariants: used is 0 while a process is checkpointed, and saved what comes back; a state is
 * written under its card's lock. Threads: any, under sim.lock of the caller; the process that
 * is locked looks at its state in sim_begin().
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

static void set_state(int pid, unsigned state)
{
    for (unsigned device = 0; next_entry(pid, &device); device++) {
        struct sim_card *card = sim.device[device].card;
        struct sim_client *mine;

        sim_card_lock(card);
        mine = entry_of(card, pid);
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
    set_state(pid, CU_PROCESS_STATE_LOCKED);
    while (!is_quiet(pid)) {
        if (sim_now_ns() > until) {
            set_state(pid, CU_PROCESS_STATE_RUNNING);
            return CUDA_ERROR_NOT_READY;
        }
        sim_sleep_until(sim_now_ns() + 1000000);
    }
    return CUDA_SUCCESS;
}

/* Memory of several processes is none that can be set aside (before driver 610). */
static bool shares(int pid)
{
    const struct sim_client *entry;
    uint32_t shared = 0;

    for (unsigned device = 0; (entry = next_entry(pid, &device)) != NULL; device++)
        shared |= __atomic_load_n(&entry->shared, __ATOMIC_SEQ_CST);
    return shared != 0;
}

static CUresult set_aside(int pid, const CUcheckpointCheckpointArgs *args)
{
    unsigned state;
    CUresult result = state_of(pid, &state);

    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_LOCKED)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    if (shares(pid))
        return CUDA_ERROR_NOT_SUPPORTED;
    for (unsigned device = 0; next_entry(pid, &device); device++) {
        struct sim_card *card = sim.device[device].card;
        struct sim_client *entry;
        uint64_t bytes = 0;

        sim_card_lock(card);
        entry = entry_of(card, pid);
        if (entry) {
            bytes = entry->saved = entry->used;
            entry->used = 0;
        }
        sim_card_unlock(card);
        sim_sleep_until(sim_card_book_bus(card, SIM_TO_HOST, bytes));
    }
    set_state(pid, CU_PROCESS_STATE_CHECKPOINTED);
    return CUDA_SUCCESS;
}

/* The bytes that the process had on one card, taken again or, with back, given up. */
static CUresult take_again(struct sim_card *card, int pid, bool back, uint64_t *bytes)
{
    const uint64_t left = sim_card_free(card);
    CUresult result = CUDA_SUCCESS;
    struct sim_client *entry;

    sim_card_lock(card);
    entry = entry_of(card, pid);
    *bytes = entry ? entry->saved : 0;
    if (!entry)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (back)
        entry->used = 0;
    else if (entry->saved > left)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else
        entry->used = entry->saved;
    sim_card_unlock(card);
    return result;
}

static CUresult bring_back(int pid, const CUcheckpointRestoreArgs *args)
{
    uint64_t bytes = 0;
    unsigned state;
    CUresult result = state_of(pid, &state);

    if (args && !is_zero(args, sizeof *args))
        return args->gpuPairsCount ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_CHECKPOINTED)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    for (unsigned device = 0; !result && next_entry(pid, &device); device++) {
        struct sim_card *card = sim.device[device].card;

        result = take_again(card, pid, false, &bytes);
        if (!result)
            sim_sleep_until(sim_card_book_bus(card, SIM_TO_DEVICE, bytes));
    }
    for (unsigned device = 0; result && next_entry(pid, &device); device++)
        take_again(sim.device[device].card, pid, true, &bytes);
    if (!result)
        set_state(pid, CU_PROCESS_STATE_LOCKED);
    return result;
}

static CUresult unlock_process(int pid, const CUcheckpointUnlockArgs *args)
{
    unsigned state;
    const CUresult result = state_of(pid, &state);

    if (args && !is_zero(args, sizeof *args))
        return CUDA_ERROR_INVALID_VALUE;
    if (result || state != CU_PROCESS_STATE_LOCKED)
        return result ? result : CUDA_ERROR_ILLEGAL_STATE;
    set_state(pid, CU_PROCESS_STATE_RUNNING);
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

/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c: decides which changes are worth a message, and measures the memory that the driver
 * calls free.
 *
 * State: the last message of each device. Client thread only.
 */
#include "runtime/client/report.h"
#include "runtime/client/connect.h"
#include "runtime/gate/gate.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/swap/kernels.h"
#include "runtime/client/session.h"
#include "runtime/swap/beyond.h"

#define STEP_BYTES (64ull << 20) /* while memory moves: a message at least this often */
#define ACCOUNT_NS 2000000ull    /* plain growth in the budget: at most one message */

/* Of each device; valid once the device is reported. */
static struct last {
    struct gs_wire_state sent;
    uint64_t sent_at;
    bool unsettled; /* it could not be measured, since memory came or went just then */
} all_last[GS_MAX_DEVICES];

/* The free memory as the driver reports it, also where a limit is set: the card may have less left
 * than that. */
static uint64_t measure_free(const struct gs_device *device)
{
    size_t free_bytes = 0, total = 0;
    CUresult result;

    if (!gs_context_enter(device))
        return UINT64_MAX;
    result = gs_driver.cuMemGetInfo_v2(&free_bytes, &total);
    gs_context_pop();
    return result == CUDA_SUCCESS ? free_bytes : UINT64_MAX;
}

static bool is_settled(const struct gs_accounts *accounts)
{
    return accounts->works_begun == accounts->works_ended;
}

/* Only if no memory came or went meanwhile, or is about to (*unsettled), since the daemon subtracts
 * resident from it. And not while the driver may have brought in pages that are not counted, and
 * that it would push out again. A program that waits for memory measures, too: others may claim
 * falsely what it waits for. */
static uint64_t measure_settled(const struct gs_device *device, uint64_t resident,
                                bool *unsettled)
{
    const struct gs_accounts before = gs_memory_accounts(device);
    const uint64_t free_bytes = is_settled(&before) ? measure_free(device) : UINT64_MAX;
    const struct gs_accounts after = gs_memory_accounts(device);

    *unsettled = !is_settled(&before) || after.works_begun != before.works_begun;
    return !*unsettled && after.resident == resident && after.loose == 0 ? free_bytes
                                                                         : UINT64_MAX;
}

/* What could leave, but has no host memory by the process's own limits: chunks that have a copy there
 * need none. Earlier devices take theirs first. (Managed memory leaves by the driver's own means.) */
static uint64_t bytes_that_stay(const struct gs_device *device, uint64_t resident)
{
    uint64_t room = gs_host_room();
    const struct gs_device *earlier;

    if (room == UINT64_MAX || device->managed)
        return 0;
    for (unsigned i = 0; (earlier = gs_device_at(i)) != device; i++)
        room -= gs_smaller(room, gs_memory_accounts(earlier).resident);
    room += gs_memory_copied(device);
    return resident - gs_smaller(resident, room);
}

static void fill_state(struct gs_wire_state *state, struct gs_device *device,
                       const struct gs_report *report)
{
    const bool wants_run = (gs_device_flags(device) & GS_TARGET_RUN) != 0;
    const uint64_t budget = atomic_load_explicit(&device->target.budget, memory_order_relaxed);
    const uint64_t kept = atomic_load_explicit(&device->moving.kept, memory_order_relaxed);
    const struct gs_accounts accounts = gs_memory_accounts(device);
    const uint64_t due = report->partial ? 0 : gs_beyond_due(device, &accounts);

    memset(state, 0, sizeof *state);
    gs_connect_header(&state->header, GS_WIRE_STATE, sizeof *state);
    memcpy(state->uuid, device->uuid, sizeof state->uuid);
    state->target_seq = atomic_load_explicit(&device->target.seq, memory_order_acquire);
    state->device_total = device->total;
    state->demand = accounts.demand - (kept < accounts.demand ? kept : accounts.demand) + due;
    state->resident = accounts.resident - (kept < accounts.resident ? kept : accounts.resident);
    if (!report->partial)
        state->stays = bytes_that_stay(device, state->resident);
    state->loose = accounts.loose;
    state->pinned_graphs = device->graphs.bytes;
    state->pinned_arrays = atomic_load_explicit(&device->arrays, memory_order_relaxed);
    state->pinned = gs_memory_pinned(device, &accounts);
    state->shared = accounts.shared;
    if ((wants_run && (accounts.missing != 0 || due != 0)) ||
        (!report->running && state->resident > budget))
        state->flags |= GS_STATE_MOVING;
    state->flags |= (report->running ? GS_STATE_RUNNING : 0) |
                    (report->want ? GS_STATE_WANT : 0) | (report->stuck ? GS_STATE_STUCK : 0) |
                    (report->partial ? GS_STATE_PARTIAL : 0) |
                    (device->report.short_bytes != 0 ? GS_STATE_SHORT : 0);
    state->short_bytes = device->report.short_bytes;
    state->moved_out = atomic_load_explicit(&gs_counts.moved_out, memory_order_relaxed);
    state->moved_in = atomic_load_explicit(&gs_counts.moved_in, memory_order_relaxed);
    state->saved = (struct gs_wire_saved){
        .equal = atomic_load_explicit(&gs_counts.saved.equal, memory_order_relaxed),
        .zero = atomic_load_explicit(&gs_counts.saved.zero, memory_order_relaxed),
        .unchanged = atomic_load_explicit(&gs_counts.saved.unchanged, memory_order_relaxed)};
    state->switch_ns = device->moving.switch_ns;
    state->host_used = gs_host_used() + gs_host_claimed();
    state->host_wanted = gs_host_wanted();
    /* including chunks that have no memory yet */
    state->over = accounts.over < state->host_used ? accounts.over : state->host_used;
    snprintf(state->device_name, sizeof state->device_name, "%s", device->name);
}

enum worth { NOTHING_NEW, LATER, NOW };

static enum worth worth_sending(const struct gs_wire_state *state,
                                const struct gs_wire_state *sent, uint64_t budget)
{
    const bool moving = (state->flags & GS_STATE_MOVING) != 0;

    if (state->flags != sent->flags || state->target_seq != sent->target_seq ||
        state->pinned != sent->pinned || state->loose != sent->loose || state->short_bytes != 0)
        return NOW;
    if (state->demand == sent->demand && state->resident == sent->resident)
        return state->host_used == sent->host_used && state->host_wanted == sent->host_wanted &&
                       state->stays == sent->stays && state->given == 0
                   ? NOTHING_NEW
                   : LATER;
    if (state->demand > budget || state->resident >= sent->resident + STEP_BYTES ||
        sent->resident >= state->resident + STEP_BYTES)
        return NOW;
    if (moving && (state->flags & GS_STATE_RUNNING) == 0 && state->resident <= budget)
        return NOW; /* arrived */
    return LATER;
}

/* Sends the state with the memory that has left and is not released. If that memory cannot be
 * sent, it is released. */
static int send_with_pieces(const struct gs_device *device, struct gs_wire_state *state,
                            const struct gs_descriptors *with)
{
    const int error = gs_connect_send(gs_session_fd(), state, sizeof *state, with);

    if (error == -EAGAIN)
        return error;
    gs_handover_sent(device);
    if (error == 0 || with->count == 0)
        return error;
    state->given = state->given_network = 0;
    memset(state->given_bytes, 0, sizeof state->given_bytes);
    return gs_connect_send(gs_session_fd(), state, sizeof *state, NULL);
}

int gs_report_send(struct gs_device *device, const struct gs_report *report, uint64_t now,
                   uint64_t *after)
{
    struct last *last = &all_last[device - gs_device_at(0)];
    struct gs_descriptors with;
    struct gs_wire_state state;
    enum worth worth = NOW;
    const uint64_t asked = device->graphs.asked; /* all figures are newer */
    bool measures, unsettled = false;
    int error;

    *after = UINT64_MAX;
    fill_state(&state, device, report);
    gs_handover_report(device, &state, &with);
    if (device->report.known)
        worth =
            worth_sending(&state, &last->sent,
                          atomic_load_explicit(&device->target.budget, memory_order_relaxed));
    if (worth == NOTHING_NEW && (asked != last->sent.asked || last->unsettled)) {
        const struct gs_accounts accounts = gs_memory_accounts(device);

        if (is_settled(&accounts))
            worth = LATER; /* what is free can be measured now */
        else if (asked != last->sent.asked)
            *after = ACCOUNT_NS;
    }
    if (worth == NOTHING_NEW)
        return 0;
    if (worth == LATER && now - last->sent_at < ACCOUNT_NS) {
        *after = ACCOUNT_NS;
        return 0;
    }
    state.device_free = UINT64_MAX;
    /* not for each piece that moves: only where a program waits for memory that does not come */
    measures = (state.flags & GS_STATE_MOVING) == 0 || state.resident == last->sent.resident;
    if (measures)
        state.device_free = measure_settled(device, state.resident, &unsettled);
    state.asked = measures && !unsettled ? asked : last->sent.asked;
    state.calls = gs_gate_calls();
    error = send_with_pieces(device, &state, &with);
    if (error == -EAGAIN || state.asked != asked)
        *after = ACCOUNT_NS;
    if (error != 0)
        return error;
    *last = (struct last){.sent = state, .sent_at = now, .unsettled = unsettled};
    device->report.known = true;
    device->report.short_bytes = 0; /* reported; asked for again when it happens again */
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_report.c: what becomes of memory that is handed over with a report, and of a question
 * (report.c), with the connection and the memory played. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <string.h>

#include "runtime/client/connect.h"
#include "runtime/client/report.h"
#include "runtime/client/session.h"
#include "runtime/gate/gate.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/range/range.h"
#include "runtime/swap/beyond.h"

#define MIB ((uint64_t)1 << 20)
#define MS  1000000ull
#define S   1000000000ull

struct gs_driver gs_driver;
struct gs_counts gs_counts;

static struct gs_device card;
static unsigned pieces;                         /* that have left and are not released */
static int with_pieces, without;                /* what such a message comes to */
static unsigned sent_with_pieces, sent_without; /* messages that went out */
static uint64_t told_pieces, told_bytes, told_network,
    told_asked; /* by the last message that went out */

/* --- what report.c stands on --- */

struct gs_device *gs_device_at(unsigned i)
{
    return i == 0 ? &card : NULL;
}

int gs_session_fd(void)
{
    return 7;
}

int gs_connect_send(int fd, const void *message, uint32_t length,
                    const struct gs_descriptors *with)
{
    const struct gs_wire_state *state = message;
    const bool any = with != NULL && with->count != 0;
    const int error = any ? with_pieces : without;

    assert_int_equal(fd, 7);
    assert_int_equal(length, sizeof *state);
    assert_int_equal(any ? with->count : 0, state->given);
    if (error != 0)
        return error;
    *(any ? &sent_with_pieces : &sent_without) += 1;
    told_pieces = state->given;
    told_bytes = state->given_bytes[0];
    told_network = state->given_network;
    told_asked = state->asked;
    return 0;
}

void gs_handover_report(const struct gs_device *device, struct gs_wire_state *state,
                        struct gs_descriptors *with)
{
    assert_ptr_equal(device, &card);
    with->count = pieces;
    for (unsigned i = 0; i < pieces; i++) {
        with->fd[i] = 0;
        state->given_bytes[i] = 2 * MIB;
    }
    state->given_network = pieces != 0;
    state->given = pieces;
}

void gs_handover_sent(const struct gs_device *device)
{
    assert_ptr_equal(device, &card);
    pieces = 0;
}

struct gs_accounts gs_memory_accounts(const struct gs_device *device)
{
    return device->accounts;
}

uint64_t gs_memory_pinned(const struct gs_device *device, const struct gs_accounts *accounts)
{
    (void)device;
    (void)accounts;
    return 0;
}

uint64_t gs_memory_copied(const struct gs_device *device)
{
    (void)device;
    return 0;
}

uint64_t gs_beyond_due(const struct gs_device *device, const struct gs_accounts *accounts)
{
    (void)device;
    (void)accounts;
    return 0;
}

uint64_t gs_host_room(void)
{
    return UINT64_MAX;
}

uint64_t gs_host_used(void)
{
    return 0;
}

uint64_t gs_host_claimed(void)
{
    return 0;
}

uint64_t gs_host_wanted(void)
{
    return 0;
}

uint64_t gs_gate_calls(void)
{
    return 0;
}

struct gs_context *gs_context_for(const struct gs_device *device)
{
    (void)device;
    return NULL;
}

CUresult gs_context_push(CUcontext handle)
{
    (void)handle;
    return CUDA_ERROR_INVALID_CONTEXT;
}

/* --- the tests --- */

static int report_at(uint64_t now, uint64_t *after)
{
    const struct gs_report report = {.running = true};

    return gs_report_send(&card, &report, now, after);
}

static int begin(void **state)
{
    (void)state;
    card = (struct gs_device){.total = 200 * MIB};
    pieces = 2;
    with_pieces = without = 0;
    sent_with_pieces = sent_without = 0;
    return 0;
}

static void gs_report_send_goes_with_the_pieces(void **state)
{
    uint64_t after;

    (void)state;
    assert_int_equal(report_at(S, &after), 0);
    assert_int_equal(sent_with_pieces, 1);
    assert_int_equal(told_bytes, 2 * MIB);
    assert_int_equal(pieces, 0);
    assert_int_equal(report_at(2 * S, &after), 0); /* no word twice */
    assert_int_equal(sent_with_pieces + sent_without, 1);
}

static void gs_report_send_full_socket_keeps_the_pieces(void **state)
{
    uint64_t after = 0;

    (void)state;
    with_pieces = -EAGAIN;
    assert_int_equal(report_at(S, &after), -EAGAIN);
    assert_true(after < S);
    assert_int_equal(pieces, 2);
    with_pieces = 0;
    assert_int_equal(report_at(2 * S, &after), 0);
    assert_int_equal(sent_with_pieces, 1);
}

static void gs_report_send_refused_pieces_are_released_and_not_told(void **state)
{
    uint64_t after;

    (void)state;
    with_pieces = -ETOOMANYREFS;
    assert_int_equal(report_at(S, &after), 0);
    assert_int_equal(sent_with_pieces, 0);
    assert_int_equal(sent_without, 1);
    assert_int_equal(pieces, 0);
    assert_int_equal(told_pieces + told_bytes + told_network, 0);
}

static void gs_report_send_lost_connection_is_told_and_the_next_gets_all(void **state)
{
    uint64_t after;

    (void)state;
    with_pieces = without = -EPIPE;
    assert_int_equal(report_at(S, &after), -EPIPE);
    assert_int_equal(pieces, 0);
    assert_false(card.report.known);
    without = 0;
    assert_int_equal(report_at(2 * S, &after), 0);
    assert_int_equal(sent_without, 1);
}

/* While another thread allocates nothing can be measured: then a question waits, and sends nothing. */
static void gs_report_send_question_waits_until_it_can_be_measured(void **state)
{
    uint64_t after;

    (void)state;
    assert_int_equal(report_at(S, &after), 0);
    card.graphs.asked = 1;
    card.accounts.works_begun = 1;
    for (uint64_t i = 1; i <= 100; i++) {
        assert_int_equal(report_at(S + i * 10 * MS, &after), 0);
        assert_true(after <= 10 * MS);
    }
    assert_int_equal(sent_with_pieces + sent_without, 1);
    card.accounts.works_ended = 1;
    assert_int_equal(report_at(3 * S, &after), 0);
    assert_int_equal(sent_with_pieces + sent_without, 2);
    assert_int_equal(told_asked, 1);
    assert_int_equal(report_at(4 * S, &after), 0); /* no word twice */
    assert_int_equal(sent_with_pieces + sent_without, 2);
}

#define FROM_BEGIN(name) cmocka_unit_test_setup(name, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FROM_BEGIN(gs_report_send_goes_with_the_pieces),
        FROM_BEGIN(gs_report_send_full_socket_keeps_the_pieces),
        FROM_BEGIN(gs_report_send_refused_pieces_are_released_and_not_told),
        FROM_BEGIN(gs_report_send_lost_connection_is_told_and_the_next_gets_all),
        FROM_BEGIN(gs_report_send_question_waits_until_it_can_be_measured),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_session.c: what the daemon's words come to (session.c), with the connection played. Time
 * is given. One thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"
#include "runtime/client/ipc.h"
#include "runtime/client/relocate.h"
#include "runtime/range/handover.h"
#include "runtime/range/host.h"
#include "runtime/swap/common.h"
#include "runtime/client/api.h"
#include "runtime/client/session.h"

#define MIB ((uint64_t)1 << 20)
#define S   1000000000ull

struct gs_runtime gs_runtime;

static struct gs_device card;
static uint64_t clock_ns;
static uint32_t seq;
static int ended;      /* the daemon's end is closed: -errno */
static char said[256]; /* by the last gs_say_once() */
static bool expecting; /* memory of another program */
static struct gs_wire_target words;
static unsigned closed, received; /* descriptors */
static uint64_t budget_before;
static int word_count; /* of the daemon that have not been heard: 0 or 1 */
static bool held;      /* a guard moves it */
static int connecting; /* what gs_connect() returns */
static bool started;   /* ... and was told */
static uint16_t word_kind = GS_WIRE_TARGET;

/* --- what session.c stands on --- */

bool gs_wish_news(struct gs_wire_wish *wish)
{
    (void)wish;
    return false;
}

void gs_wish_sent(void)
{
}

void gs_wish_anew(void)
{
}

int gs_connect(bool start, struct gs_own_fd *connection, struct gs_err *why)
{
    (void)why;
    started = start;
    if (connecting != 0)
        return connecting;
    ended = 0;
    gs_own_fd_set(connection, dup(STDERR_FILENO)); /* to be closed */
    return 0;
}

bool gs_connect_is_forbidden(int error)
{
    return error == -EPERM;
}

int gs_connect_send(int fd, const void *message, uint32_t length,
                    const struct gs_descriptors *with)
{
    (void)fd;
    (void)message;
    (void)length;
    (void)with;
    return 0;
}

int gs_connect_receive(int fd, union gs_connect_message *message, unsigned most,
                       struct gs_descriptors *with)
{
    (void)fd;
    assert_true(expecting);
    assert_int_equal(most, 16);
    with->count = 0;
    if (ended != 0)
        return ended;
    if (word_count == 0)
        return 0;
    word_count--;
    message->target = words;
    message->header.type = word_kind;
    with->count = words.handed;
    return 1;
}

void gs_descriptors_close(struct gs_descriptors *descriptors)
{
    closed += descriptors->count;
    descriptors->count = 0;
}

void gs_exporter_asked(const struct gs_wire_open *open, uint64_t now)
{
    (void)open;
    (void)now;
}

void gs_exporter_lost(void)
{
}

void gs_opener_heard(const struct gs_wire_share *share, struct gs_descriptors *with)
{
    (void)share;
    (void)with;
}

void gs_opener_lost(void)
{
}

unsigned gs_opener_expects(void)
{
    return 0;
}

unsigned gs_handover_expect(unsigned least)
{
    assert_int_equal(least, 0);
    assert_false(expecting);
    expecting = true;
    return 16;
}

void gs_handover_end(void)
{
    expecting = false;
}

void gs_handover_heard(struct gs_device *device, const struct gs_wire_target *target,
                       struct gs_descriptors *with)
{
    assert_true(expecting);
    assert_ptr_equal(device, &card);
    assert_int_equal(target->handed_bytes[0], with->count != 0 ? 2 * MIB : 0);
    budget_before = atomic_load(&card.target.budget);
    received += with->count;
    with->count = 0;
}

void gs_relocate_lost(void)
{
}

bool gs_relocate_is_asked(void)
{
    return false;
}

bool gs_relocate_holds(void)
{
    return held;
}

void gs_relocate_heard(const struct gs_wire_move *message)
{
    (void)message;
}

void gs_evidence_lost(void)
{
}

void gs_common_lost(void)
{
}

void gs_handover_lost(void)
{
    received = 0;
}

void gs_connect_note(struct gs_wire_note *note, uint32_t kind, const char *text)
{
    (void)note;
    (void)kind;
    (void)text;
}

struct gs_device *gs_device_at(unsigned i)
{
    return i == 0 ? &card : NULL;
}

struct gs_accounts gs_memory_accounts(const struct gs_device *device)
{
    (void)device;
    return (struct gs_accounts){0};
}

void gs_common_heard(const struct gs_wire_copy *copy, const struct gs_descriptors *with)
{
    (void)copy;
    (void)with;
}

bool gs_common_say(struct gs_wire_copy *copy, int *fd)
{
    (void)copy;
    (void)fd;
    return false;
}

void gs_common_said(const struct gs_wire_copy *copy)
{
    (void)copy;
}

void gs_host_set_budget(uint64_t bytes)
{
    (void)bytes;
}

void gs_worker_wake(void)
{
}

uint64_t gs_now(void)
{
    return clock_ns;
}

void gs_log(const char *format, ...)
{
    (void)format;
}

void gs_say_once(bool *once, const char *format, ...)
{
    va_list ap;

    (void)once;
    va_start(ap, format);
    vsnprintf(said, sizeof said, format, ap);
    va_end(ap);
}

/* --- the tests --- */

static void turn_later(uint64_t ns)
{
    clock_ns += ns;
    gs_session_turn(clock_ns);
}

static void hear_target(uint64_t capacity)
{
    words = (struct gs_wire_target){
        .seq = ++seq, .flags = GS_TARGET_RUN, .budget = MIB, .capacity = capacity};
    word_count = 1;
    turn_later(1);
    assert_int_equal(word_count, 0);
}

static void begin_anew(void)
{
    gs_session_after_fork();
    gs_child_clear();
    card = (struct gs_device){.total = 200 * MIB, .target.capacity = 200 * MIB};
    clock_ns += 100 * S;
    said[0] = '\0';
}

/* A program of a daemon that has told it `capacity`. */
static void begin_session(uint64_t capacity)
{
    begin_anew();
    hear_target(capacity);
}

static uint64_t read_capacity(void)
{
    return atomic_load(&card.target.capacity);
}

static void comes_back(void)
{
    ended = -ECONNRESET;
    turn_later(1);
    assert_int_equal(gs_session_fd(), -1);
    turn_later(S / 10);
    assert_true(gs_session_fd() >= 0);
}

static void gs_session_turn_capacity_counts_at_once(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    assert_int_equal(read_capacity(), 100 * MIB);
    hear_target(60 * MIB);
    assert_int_equal(read_capacity(), 60 * MIB);
    hear_target(80 * MIB);
    assert_int_equal(read_capacity(), 80 * MIB);
}

/* It says less at first, as it does not know of all programs; what it said is true in the end,
 * also when it says nothing more. */
static void gs_session_turn_new_daemon_less_counts_a_little_later(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    comes_back();
    hear_target(60 * MIB);
    assert_int_equal(read_capacity(), 100 * MIB);
    turn_later(S);
    assert_int_equal(read_capacity(), 100 * MIB);
    turn_later(4 * S);
    assert_int_equal(read_capacity(), 60 * MIB);
}

static void gs_session_turn_new_daemon_more_counts_at_once(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    comes_back();
    hear_target(60 * MIB);
    hear_target(120 * MIB);
    assert_int_equal(read_capacity(), 120 * MIB);
    turn_later(5 * S);
    assert_int_equal(read_capacity(), 120 * MIB);
}

/* Without one, everything is allowed; what the last one said counts no more. */
static void gs_session_turn_without_daemon_all_is_there(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    ended = -ECONNRESET;
    turn_later(1);
    gs_session_give_up("a test");
    turn_later(S);
    assert_int_equal(read_capacity(), 200 * MIB);
    hear_target(90 * MIB);
    turn_later(5 * S);
    assert_int_equal(read_capacity(), 90 * MIB);
}

/* A daemon that refuses says so. Another one is killed before it has sent a target. */
static void assert_gives_up(int end, const char *why)
{
    begin_anew();
    for (int i = 0; i < 100 && said[0] == '\0'; i++) {
        turn_later(S / 5); /* it connects */
        ended = end;
        turn_later(1);
    }
    assert_non_null(strstr(said, why));
    assert_true(gs_daemon_is_absent());
}

static void gs_session_turn_never_answered_says_why(void **state)
{
    (void)state;
    assert_gives_up(-ECONNREFUSED, "gpushare-lockd refuses it");
    assert_gives_up(-ECONNRESET, "gpushare-lockd repeatedly ends before it answers");
}

static void begins_unheard(void)
{
    begin_anew();
    held = false;
    connecting = 0;
    turn_later(S / 5);
    gs_session_asked(clock_ns);
}

static void lose_after(uint64_t seconds)
{
    for (uint64_t i = 0; i < seconds; i++)
        turn_later(S);
    ended = -ECONNRESET;
    turn_later(1);
}

/* Daemons that are killed now and then: on a busy machine some of them have not answered. */
static void gs_session_turn_few_ends_are_none_that_count(void **state)
{
    (void)state;
    begins_unheard();
    for (int i = 0; i < 4; i++)
        lose_after(3);
    assert_string_equal(said, "");
    lose_after(3);
    assert_non_null(strstr(said, "repeatedly ends"));
    begins_unheard();
    for (int i = 0; i < 10; i++) {
        lose_after(3);
        turn_later(S / 5);
        lose_after(0);
        turn_later(S / 5);
        hear_target(100 * MIB); /* one that answers is not among them */
    }
    assert_string_equal(said, "");
}

/* Another daemon begins at 0: what was answered stays answered, so that nobody takes it for one that hangs. */
static void gs_session_turn_answered_questions_stay_answered(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        words.seq = ++seq;
        words.answered = (uint64_t[]){7, 0, 6, 8}[i];
        word_count = 1;
        turn_later(1);
        assert_int_equal(atomic_load(&card.target.answered), i < 3 ? 7 : 8);
    }
}

/* Time in which the process did not run is no time that the daemon did not answer. */
static void gs_session_turn_stall_is_no_silence(void **state)
{
    (void)state;
    begins_unheard();
    turn_later(600 * S);
    assert_string_equal(said, "");
    for (int i = 0; i < 10 && said[0] == '\0'; i++)
        turn_later(S);
    assert_non_null(strstr(said, "gpushare-lockd does not answer"));
    begins_unheard();
    ended = -ECONNRESET;
    connecting = -EAGAIN;
    turn_later(1);
    turn_later(600 * S);
    assert_string_equal(said, "");
    for (int i = 0; i < 10 && said[0] == '\0'; i++)
        turn_later(S);
    assert_non_null(strstr(said, "running without sharing"));
}

/* The daemon answers what it is told of a device: nothing, while a context takes long to make. */
static void gs_session_turn_without_a_question_no_answer_is_awaited(void **state)
{
    (void)state;
    begins_unheard();
    lose_after(1);
    for (int i = 0; i < 100; i++)
        turn_later(S);
    assert_string_equal(said, "");
    gs_session_asked(clock_ns);
    for (int i = 0; i < 4; i++) {
        turn_later(S);
        gs_session_asked(clock_ns); /* the first one counts */
    }
    assert_string_equal(said, "");
    for (int i = 0; i < 2; i++)
        turn_later(S);
    assert_non_null(strstr(said, "gpushare-lockd does not answer"));
}

/* Only the next daemon brings back a program whose guard was killed. */
static void gs_session_turn_while_it_is_moved_it_needs_a_daemon(void **state)
{
    (void)state;
    begins_unheard();
    held = true;
    for (int i = 0; i < 100; i++) {
        turn_later(S);
        ended = i % 3 == 0 ? -ECONNRESET : ended;
    }
    assert_string_equal(said, "");
    assert_false(gs_daemon_is_absent());
    connecting = -ENOENT;
    ended = -ECONNRESET;
    for (int i = 0; i < 10; i++)
        turn_later(S);
    assert_non_null(strstr(said, "waiting for gpushare-lockd"));
    assert_false(gs_daemon_is_absent());
    gs_session_give_up("a test, before it was moved");
    started = false;
    connecting = 0;
    turn_later(S);
    turn_later(S);
    assert_true(started);
    assert_true(gs_session_fd() >= 0);
    word_kind = GS_WIRE_MOVE; /* the end of the move */
    word_count = 1;
    turn_later(1);
    word_kind = GS_WIRE_TARGET;
    held = false;
    gs_daemon_set_absent(false);
    said[0] = '\0';
    for (int i = 0; i < 10; i++)
        turn_later(S);
    assert_string_equal(said, "");
}

/* What comes with a target is there before its budget counts; what is for nobody is closed. */
static void gs_session_turn_handed_over_memory_comes_before_its_budget(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    closed = received = 0;
    words = (struct gs_wire_target){.seq = ++seq,
                                    .flags = GS_TARGET_RUN,
                                    .budget = 7 * MIB,
                                    .capacity = 100 * MIB,
                                    .handed = 3,
                                    .handed_bytes = {2 * MIB, 2 * MIB, 2 * MIB}};
    word_count = 1;
    turn_later(1);
    assert_int_equal(received, 3);
    assert_int_equal(budget_before, MIB);
    assert_int_equal(atomic_load(&card.target.budget), 7 * MIB);
    words.uuid[0] = 1; /* of another device */
    word_count = 1;
    turn_later(1);
    assert_int_equal(received, 3);
    assert_int_equal(closed, 3);
    ended = -ECONNRESET;
    turn_later(1);
    assert_int_equal(received, 0); /* a new daemon does not know of them */
}

/* It cannot start one; the daemon may be being replaced. */
static void gs_session_turn_gap_is_waited_out_where_none_can_be_started(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    ended = -ECONNRESET;
    connecting = -ENOENT;
    turn_later(1);
    turn_later(1);
    assert_true(started);
    for (unsigned i = 0; i < 40; i++) {
        turn_later(S / 10);
        assert_false(gs_daemon_is_absent());
        assert_false(started); /* that was tried once */
    }
    connecting = 0;
    turn_later(S / 10);
    assert_true(gs_session_fd() >= 0);
    assert_false(gs_daemon_is_absent());
}

static void gs_session_turn_content_program_finds_the_daemon_within_100_ms(void **state)
{
    (void)state;
    begin_session(100 * MIB);
    ended = -ECONNRESET;
    connecting = -ENOENT;
    for (unsigned i = 0; i < 60; i++)
        turn_later(S / 10);
    assert_true(gs_daemon_is_absent());
    connecting = 0;
    turn_later(S / 10);
    assert_true(gs_session_fd() >= 0);
    hear_target(100 * MIB);
    assert_false(gs_daemon_is_absent());
}

static void gs_session_turn_program_that_never_had_a_daemon_does_not_wait(void **state)
{
    (void)state;
    begin_anew();
    connecting = -ENOENT;
    turn_later(S);
    assert_true(gs_daemon_is_absent());
    connecting = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gs_session_turn_capacity_counts_at_once),
        cmocka_unit_test(gs_session_turn_gap_is_waited_out_where_none_can_be_started),
        cmocka_unit_test(gs_session_turn_content_program_finds_the_daemon_within_100_ms),
        cmocka_unit_test(gs_session_turn_program_that_never_had_a_daemon_does_not_wait),
        cmocka_unit_test(gs_session_turn_new_daemon_less_counts_a_little_later),
        cmocka_unit_test(gs_session_turn_new_daemon_more_counts_at_once),
        cmocka_unit_test(gs_session_turn_without_daemon_all_is_there),
        cmocka_unit_test(gs_session_turn_never_answered_says_why),
        cmocka_unit_test(gs_session_turn_few_ends_are_none_that_count),
        cmocka_unit_test(gs_session_turn_answered_questions_stay_answered),
        cmocka_unit_test(gs_session_turn_stall_is_no_silence),
        cmocka_unit_test(gs_session_turn_without_a_question_no_answer_is_awaited),
        cmocka_unit_test(gs_session_turn_while_it_is_moved_it_needs_a_daemon),
        cmocka_unit_test(gs_session_turn_handed_over_memory_comes_before_its_budget),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

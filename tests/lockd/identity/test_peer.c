/* SPDX-License-Identifier: Apache-2.0
 *
 * test_peer.c: what follows from an identity (lockd/programs/identity.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <unistd.h>

#include "lockd/programs/identity.h"

static struct lockd_peer make_peer(pid_t pid, const char *container)
{
    const struct lockd_identity here = {.uid = 1, .depth = 1};
    struct lockd_identity identity = {.uid = 1, .pid = pid, .depth = 1};
    struct lockd_peer peer;

    strncpy(identity.container, container, sizeof identity.container - 1);
    lockd_peer_init(&peer, &identity, &here, 1, pid);
    return peer;
}

static void name_where_the_kernel_tells_the_pid_counts_for_nothing(void **state)
{
    struct lockd_peer peer = make_peer(17, "");

    (void)state;
    lockd_peer_name(&peer, 18);
    assert_int_equal(peer.pid, 17);
    assert_false(peer.foreign);
}

static void name_where_the_kernel_tells_none_is_taken_as_foreign(void **state)
{
    struct lockd_peer peer = make_peer(0, "");

    (void)state;
    lockd_peer_name(&peer, getpid());
    assert_int_equal(peer.pid, getpid());
    assert_true(peer.foreign);
    assert_false(lockd_peer_is_beside(&peer)); /* not even with a number that exists here */
}

static void process_of_this_namespace_is_beside(void **state)
{
    struct lockd_peer peer = make_peer(getpid(), "");

    (void)state;
    assert_false(peer.identity.contained);
    assert_true(lockd_peer_is_beside(&peer));
}

static void process_in_a_container_is_contained_and_not_beside(void **state)
{
    struct lockd_peer peer = make_peer(getpid(), "web");

    (void)state;
    assert_true(peer.identity.contained);
    assert_false(peer.controls);
    assert_false(lockd_peer_is_beside(&peer));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_where_the_kernel_tells_the_pid_counts_for_nothing),
        cmocka_unit_test(name_where_the_kernel_tells_none_is_taken_as_foreign),
        cmocka_unit_test(process_of_this_namespace_is_beside),
        cmocka_unit_test(process_in_a_container_is_contained_and_not_beside),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

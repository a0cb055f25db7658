/* SPDX-License-Identifier: Apache-2.0
 *
 * test_grpc_peer.c: a server's peer on one end of a socket, and a client's link at the other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/grpc_link.h"
#include "cluster/grpc_peer.h"

#include <sys/socket.h>
#include <unistd.h>

#define LARGE 300000u /* bytes: more than the socket takes at a time */

struct ends {
    struct grpc_peer server;
    struct grpc_link *client;
    int fd; /* the client's */
    unsigned answers;
    size_t size; /* of the newest answer */
};

static uint8_t message[LARGE];

static void echo(void *context, struct grpc_call *call, const uint8_t *bytes, size_t size)
{
    (void)context;
    assert_int_equal(grpc_call_send(call, bytes, size), 0);
    grpc_call_end(call, GRPC_OK, NULL);
}

static const struct grpc_method methods[] = {{"/test/Echo", echo}, {NULL, NULL}};

static void take_answer(void *context, enum grpc_status status, const char *text,
                        const uint8_t *bytes, size_t size)
{
    struct ends *ends = context;

    (void)text;
    assert_int_equal(status, GRPC_OK);
    assert_memory_equal(bytes, message, size);
    ends->answers++;
    ends->size = size;
}

static int ends_init(void **state, int type)
{
    static struct ends ends;
    int fd[2];

    if (socketpair(AF_UNIX, type | SOCK_NONBLOCK, 0, fd) != 0)
        return -1;
    for (size_t i = 0; i < LARGE; i++)
        message[i] = (uint8_t)(i * 7 + i / 256);
    ends = (struct ends){.fd = fd[1], .client = grpc_link_new(NULL, NULL)};
    *state = &ends;
    return grpc_peer_init(&ends.server, fd[0], grpc_link_new(methods, NULL));
}

static int ends_init_packets(void **state) /* what is sent at once comes at once */
{
    return ends_init(state, SOCK_SEQPACKET);
}

static int ends_init_stream(void **state)
{
    return ends_init(state, SOCK_STREAM);
}

static int ends_deinit(void **state)
{
    struct ends *ends = *state;

    grpc_peer_deinit(&ends->server);
    grpc_link_free(ends->client);
    return close(ends->fd);
}

/* One round trip: what the client has to say, the server's turn, what came. Its number of
 * packets. */
static unsigned run_once(struct ends *ends)
{
    static uint8_t bytes[1 << 20];
    struct gs_err err = {0};
    const uint8_t *next;
    unsigned packets = 0;
    ssize_t size;

    while ((size = grpc_link_take(ends->client, &next)) > 0)
        assert_int_equal(send(ends->fd, next, (size_t)size, 0), size);
    assert_int_equal(grpc_peer_run(&ends->server, &err), 0);
    while ((size = recv(ends->fd, bytes, sizeof bytes, 0)) > 0) {
        packets++;
        assert_int_equal(grpc_link_feed(ends->client, bytes, (size_t)size, &err), 0);
    }
    return packets;
}

static void ask(struct ends *ends, size_t size)
{
    assert_int_equal(
        grpc_link_ask(ends->client, "/test/Echo", message, size, take_answer, ends), 0);
}

/* Each wakes the other side, which on a busy machine takes the processor from this one. */
static void a_small_answer_is_sent_at_once(void **state)
{
    struct ends *ends = *state;
    unsigned packets;

    while (run_once(ends) != 0) {
    } /* the settings of both */
    for (unsigned i = 1; i < 4; i++) {
        ask(ends, 100);
        while ((packets = run_once(ends)) == 0) {
        }
        assert_int_equal(packets, 1);
        assert_int_equal(ends->answers, i);
        while (run_once(ends) != 0) {
        }
    }
}

static void a_large_answer_arrives_whole_through_a_full_socket(void **state)
{
    struct ends *ends = *state;
    const int room = 8192;

    assert_int_equal(setsockopt(ends->server.fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    for (unsigned i = 1; i < 4; i++) {
        ask(ends, LARGE);
        for (int rounds = 0; ends->answers < i && rounds < 100000; rounds++)
            run_once(ends);
        assert_int_equal(ends->answers, i);
        assert_int_equal(ends->size, LARGE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_small_answer_is_sent_at_once, ends_init_packets,
                                        ends_deinit),
        cmocka_unit_test_setup_teardown(a_large_answer_arrives_whole_through_a_full_socket,
                                        ends_init_stream, ends_deinit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

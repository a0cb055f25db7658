/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.c: owns the list of the memory that other processes have open.
 *
 * State: the list, which only the client thread changes, and under gs_memory_lock; whether there
 * was ever a share, and when the last share ended (atomic). Invariant: a live range has as many
 * shares as there are entries here of its id.
 */
#include "runtime/range/shares.h"

#include <poll.h>
#include <sys/socket.h>

/* A report and a target, and the other side's release of what it keeps. The daemon checks figures
 * that contradict others a second later. */
#define SETTLED_NS 2000000000ull

static struct gs_share *shares;
static _Atomic(bool) begun GS_ZERO_IN_CHILD; /* relaxed */
static _Atomic(uint64_t) changed_at
    GS_ZERO_IN_CHILD; /* ns: memory was freed, or unshared. Relaxed */

bool gs_shares_any(void)
{
    return shares != NULL;
}

bool gs_shares_begun(void)
{
    return atomic_load_explicit(&begun, memory_order_relaxed);
}

bool gs_shares_unsettled(void)
{
    const uint64_t since = atomic_load_explicit(&changed_at, memory_order_relaxed);

    return since != 0 && gs_now() - since < SETTLED_NS;
}

static void note_change(void)
{
    atomic_store_explicit(&changed_at, gs_now(), memory_order_relaxed);
}

struct gs_share *gs_share_new(const uint8_t token[16], int *theirs)
{
    struct gs_share *share = calloc(1, sizeof *share);
    int ends[2];

    if (share == NULL ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        free(share);
        return NULL;
    }
    gs_own_fd_set(&share->line, ends[0]);
    memcpy(share->token, token, sizeof share->token);
    *theirs = ends[1];
    return share;
}

void gs_share_free(struct gs_share *share)
{
    gs_own_fd_close(&share->line);
    free(share);
}

void gs_share_link(struct gs_share *share, const struct gs_range *range)
{
    share->base = range->node.base;
    share->id = range->id;
    share->next = shares;
    shares = share;
    atomic_store_explicit(&begun, true, memory_order_relaxed);
}

void gs_share_unlink(struct gs_share *share)
{
    struct gs_share **at = &shares;

    while (*at != share)
        at = &(*at)->next;
    *at = share->next;
    note_change();
}

/* If the program has closed our end, nothing is known, and the memory stays in place. */
static bool has_ended(const struct gs_share *share)
{
    struct pollfd polled = {gs_own_fd(&share->line), 0, 0};

    return polled.fd >= 0 && poll(&polled, 1, 0) > 0 &&
           (polled.revents & (POLLHUP | POLLERR)) != 0;
}

struct gs_share *gs_shares_ended(void)
{
    struct gs_share *share = shares;

    while (share != NULL && !has_ended(share))
        share = share->next;
    return share;
}

void gs_shares_freed(const struct gs_range *range, const uint8_t *token)
{
    GS_KEEP_ERRNO;

    for (const struct gs_share *share = shares; share != NULL; share = share->next)
        if (share->id == range->id &&
            (token == NULL || memcmp(share->token, token, sizeof share->token) == 0)) {
            shutdown(gs_own_fd(&share->line), SHUT_WR);
            note_change();
        }
}

void gs_shares_after_fork(void)
{
    while (shares != NULL) { /* these are the parent's memory */
        struct gs_share *share = shares;

        shares = share->next;
        gs_share_free(share);
    }
}

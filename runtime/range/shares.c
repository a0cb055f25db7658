/* SPDX-License-Identifier: Apache-2.0
 *
 * shares.c: owns the list of the memory that other processes have open.
 *
 * State: the list, which only the client thread changes, and under gs_memory_lock; whether there
 * was ever one, and when the last one ended (atomic). Invariant: a live range has as many shares as there are entries here of
 * its id.
 */
#include "runtime/range/shares.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/own_fd.h"
#include "runtime/range/memory_lock.h"

/* A report and a target, and the other side's release of what it keeps. The daemon checks figures
 * that contradict others a second later. */
#define SETTLED_NS 2000000000ull

struct gs_share {
    struct gs_share *next;
    struct gs_own_fd line; /* our end */
    CUdeviceptr base;      /* of the range */
    uint64_t id;           /* of the range; its address may be another range's by then */
    uint8_t token[16];     /* of the allocation */
};

static struct gs_share *shares;
static _Atomic(bool) begun;          /* relaxed */
static _Atomic(uint64_t) changed_at; /* ns: memory was freed, or unshared. Relaxed */

bool gs_shares_begun(void)
{
    return atomic_load_explicit(&begun, memory_order_relaxed);
}

bool gs_shares_any(void)
{
    return shares != NULL;
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

/* Under the lock: the range of that share, or NULL if it has been freed. */
static struct gs_range *range_of(const struct gs_share *share)
{
    struct gs_range *range = gs_range_at(share->base);

    return range != NULL && range->id == share->id && range->pin.shares != 0 ? range : NULL;
}

void gs_share_end(struct gs_share *share)
{
    struct gs_share **at = &shares;
    struct gs_range *range;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    while (*at != share)
        at = &(*at)->next;
    *at = share->next;
    range = range_of(share);
    if (range != NULL) {
        gs_range_unshare(range);
        note_change();
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_own_fd_close(&share->line);
    gs_log("memory at %#llx is open in one process less", (unsigned long long)share->base);
    free(share);
}

/* If the program has closed our end, nothing is known, and the memory stays in place. */
static bool has_ended(const struct gs_share *share)
{
    struct pollfd polled = {gs_own_fd(&share->line), 0, 0};

    return polled.fd >= 0 && poll(&polled, 1, 0) > 0 &&
           (polled.revents & (POLLHUP | POLLERR)) != 0;
}

void gs_shares_look(void)
{
    struct gs_share *next;

    for (struct gs_share *share = shares; share != NULL; share = next) {
        next = share->next;
        if (has_ended(share))
            gs_share_end(share);
    }
}

/* Under the lock. */
static bool is_exported(const struct gs_range *range, const uint8_t token[16])
{
    const struct gs_export *export = range->exports;

    while (export != NULL &&
           (export->base == 0 || memcmp(export->token, token, sizeof export->token) != 0))
        export = export->next;
    return range->life == GS_RANGE_LIVE && export != NULL;
}

/* Counts it. False: the program has freed it meanwhile. */
static bool add_share(struct gs_share *share, struct gs_range *range)
{
    bool lives;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    lives = is_exported(range, share->token);
    if (lives) {
        gs_range_share(range);
        share->base = range->node.base;
        share->id = range->id;
        share->next = shares;
        shares = share;
    }
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return lives;
}

struct gs_share *gs_share_begin(struct gs_range *range, const uint8_t token[16], int *theirs,
                                int *error)
{
    struct gs_share *share = calloc(1, sizeof *share);
    int ends[2];

    *error = -EIO;
    if (share == NULL ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
        free(share);
        return NULL;
    }
    gs_own_fd_set(&share->line, ends[0]);
    memcpy(share->token, token, sizeof share->token);
    if (!add_share(share, range)) {
        gs_own_fd_close(&share->line);
        close(ends[1]);
        free(share);
        *error = -ENOENT;
        return NULL;
    }
    atomic_store_explicit(&begun, true, memory_order_relaxed);
    *theirs = ends[1];
    *error = 0;
    return share;
}

void gs_shares_freed(const struct gs_range *range, const uint8_t *token)
{
    const int saved = errno;

    for (const struct gs_share *share = shares; share != NULL; share = share->next)
        if (share->id == range->id &&
            (token == NULL || memcmp(share->token, token, sizeof share->token) == 0)) {
            shutdown(gs_own_fd(&share->line), SHUT_WR);
            note_change();
        }
    errno = saved;
}

void gs_shares_after_fork(void)
{
    atomic_store(&begun, false);
    atomic_store(&changed_at, 0);
    while (shares != NULL) { /* these are the parent's memory */
        struct gs_share *share = shares;

        shares = share->next;
        gs_own_fd_close(&share->line);
        free(share);
    }
}

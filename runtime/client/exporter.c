/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter.c: owns the requests of other processes to open memory of this one, and the list of
 * the memory that they have open (shares). Client thread only.
 *
 * Invariant: a live range has as many shares as there are entries here of its id. A range with a
 * handle is disposed of by this thread only, so a range that was found stays for the whole step.
 */
#include "runtime/client/exporter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/daemon.h"
#include "runtime/base/log.h"
#include "runtime/base/mutex.h"
#include "runtime/base/own_fd.h"
#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"
#include "runtime/memory/exports.h"
#include "runtime/range/chunk.h"
#include "runtime/range/handover.h"
#include "runtime/range/memory_lock.h"
#include "runtime/swap/remake.h"

#define MS          1000000ull
#define WAIT_NS     (30000 * MS) /* the opener does not wait for longer either */
#define LOOK_NS     (250 * MS)   /* from look to look whether it is still open */
#define UNASKED_NS  (10000 * MS)
#define ASKED_MOST  256u
#define REMADE_ONCE 8u /* chunks in one round */

struct asked {
    struct asked *next;
    struct gs_wire_open open;
    uint64_t since;
    uint32_t sent; /* chunks */
};

struct share {
    struct share *next;
    struct gs_own_fd open; /* the read end: end of file when no process has the memory open */
    CUdeviceptr base;      /* of the range */
    uint64_t id;           /* of the range; its address may be another range's by then */
};

static struct {
    struct asked *asked;
    unsigned asked_count;
    struct share *shares;
    uint64_t looked_at;
    bool waits, needs_stop, said;
} self;

bool gs_exporter_waits(void)
{
    return self.waits;
}

bool gs_exporter_shares(void)
{
    return self.shares != NULL;
}

bool gs_exporter_needs_stop(void)
{
    return self.needs_stop;
}

void gs_exporter_asked(const struct gs_wire_open *open, uint64_t now)
{
    struct asked *asked = self.asked_count < ASKED_MOST ? calloc(1, sizeof *asked) : NULL,
                 **at = &self.asked;

    if (asked == NULL)
        return; /* the opener asks again, or gives up */
    asked->open = *open;
    asked->since = now;
    while (*at != NULL)
        at = &(*at)->next;
    *at = asked;
    self.asked_count++;
}

static void drop_asked(struct asked **at)
{
    struct asked *asked = *at;

    *at = asked->next;
    self.asked_count--;
    free(asked);
}

void gs_exporter_lost(void)
{
    while (self.asked != NULL)
        drop_asked(&self.asked);
    self.waits = self.needs_stop = false;
}

/* --- shares --- */

/* Under the lock: the range of that share, or NULL if it has been freed. */
static struct gs_range *range_of(const struct share *share)
{
    struct gs_range *range = gs_range_at(share->base);

    return range != NULL && range->id == share->id && range->pin.shares != 0 ? range : NULL;
}

static void end_share(struct share **at)
{
    struct share *share = *at;
    struct gs_range *range;

    *at = share->next;
    gs_own_fd_close(&share->open);
    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    range = range_of(share);
    if (range != NULL)
        gs_range_unshare(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    gs_log("memory at %#llx is open in one process less", (unsigned long long)share->base);
    free(share);
}

/* The other side has closed its end, or has died. If the program has closed our end, nothing is
 * known, and the memory stays in place. */
static bool has_ended(const struct share *share)
{
    struct pollfd polled = {gs_own_fd(&share->open), POLLIN, 0};

    return polled.fd >= 0 && poll(&polled, 1, 0) > 0 &&
           (polled.revents & (POLLHUP | POLLERR)) != 0;
}

static void look_at_shares(uint64_t now)
{
    struct share **at = &self.shares;

    if (now - self.looked_at < LOOK_NS / 8)
        return;
    self.looked_at = now;
    while (*at != NULL)
        if (has_ended(*at))
            end_share(at);
        else
            at = &(*at)->next;
}

/* Counts one more process that has the range. False: the program has freed it meanwhile. */
static bool count_share(struct gs_range *range)
{
    bool lives;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    lives = range->life == GS_RANGE_LIVE;
    if (lives)
        gs_range_share(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    return lives;
}

/* Begins a share of the range with one more process. The write end of its pipe is in *fd, the
 * caller's. Between gs_handover_begin() and _end(). -ENOENT: it is freed; -EIO: no descriptor,
 * or no memory. */
static int begin_share(struct gs_range *range, int *fd)
{
    struct share *share = calloc(1, sizeof *share);
    uint8_t number[16];
    int ends[2];

    if (share == NULL || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
        free(share);
        return -EIO;
    }
    if (!count_share(range)) {
        close(ends[0]);
        close(ends[1]);
        free(share);
        return -ENOENT;
    }
    gs_own_fd_set(&share->open, ends[0]);
    *fd = ends[1];
    share->base = range->node.base;
    share->id = range->id;
    share->next = self.shares;
    self.shares = share;
    gs_exports_number(number);
    gs_evidence_share(number);
    return 0;
}

/* --- answers --- */

static int refuse_open(const struct asked *asked, int fd, int code)
{
    struct gs_wire_share share = {.number = asked->open.number, .code = code};

    gs_connect_header(&share.header, GS_WIRE_SHARE, sizeof share);
    return gs_connect_send(fd, &share, sizeof share, NULL);
}

static void describe_share(struct gs_wire_share *share, const struct asked *asked,
                           const struct gs_exported *found)
{
    const struct gs_range *range = found->range;

    *share = (struct gs_wire_share){.number = asked->open.number,
                                    .bytes = range->reserved,
                                    .chunk_bytes = range->chunk_bytes,
                                    .offset = found->base - range->node.base,
                                    .size = found->bytes,
                                    .first = asked->sent};
    gs_connect_header(&share->header, GS_WIRE_SHARE, sizeof *share);
    memcpy(share->uuid, range->device->uuid, sizeof share->uuid);
}

/* Gets descriptors of the next chunks; false: one of them has none. */
static bool lend_chunks(const struct gs_range *range, uint32_t first,
                        struct gs_descriptors *with, bool made[GS_SHARE_MOST])
{
    for (uint32_t i = first; i < range->chunk_count && with->count < GS_SHARE_MOST; i++) {
        const int fd = gs_handover_lend(&range->chunks[i], &made[with->count]);

        if (fd < 0)
            return false;
        with->fd[with->count++] = fd;
    }
    return true;
}

/* Sends the next message. 0: sent; -EAGAIN: later; else the open fails. No thread forks
 * meanwhile. */
static int send_chunks(struct asked *asked, const struct gs_exported *found, int fd)
{
    struct gs_descriptors with = {.count = 0};
    bool made[GS_SHARE_MOST] = {false};
    struct gs_wire_share message;
    int error, write_end = -1;

    describe_share(&message, asked, found);
    error = lend_chunks(found->range, asked->sent, &with, made) ? 0 : -EIO;
    if (error == 0 && asked->sent == 0)
        error = begin_share(found->range, &write_end);
    message.count = with.count;
    if (error == 0) {
        if (write_end >= 0)
            with.fd[with.count++] = write_end;
        error = gs_connect_send(fd, &message, sizeof message, &with);
        with.count = message.count;
    }
    for (unsigned i = 0; i < with.count; i++)
        if (made[i])
            close(with.fd[i]);
    if (write_end >= 0)
        close(write_end);
    if (error == 0)
        asked->sent += message.count;
    else if (write_end >= 0)
        end_share(&self.shares); /* the new share is the first one */
    return error;
}

/* Brings the range in, and makes memory of which descriptors can be made. -EAGAIN: not ready
 * yet. */
static int make_ready(struct gs_range *range, bool stopped)
{
    CUresult result = CUDA_SUCCESS;
    bool whole;

    gs_lock(&gs_memory_lock, GS_LOCK_MEMORY);
    whole = gs_range_is_whole(range);
    gs_unlock(&gs_memory_lock, GS_LOCK_MEMORY);
    if (!whole || range->moving != 0)
        return -EAGAIN;
    for (unsigned i = 0;
         stopped && i < REMADE_ONCE && result == CUDA_SUCCESS && !gs_remake_is_done(range); i++)
        result = gs_remake_next(range);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        return -EIO;
    if (gs_remake_is_done(range))
        return 0;
    self.needs_stop = true;
    return -EAGAIN;
}

/* 0: answered, with memory or a refusal; -EAGAIN: later. */
static int answer_asked(struct asked *asked, uint64_t now, bool stopped, int fd)
{
    struct gs_exported found;
    int error;

    if (!gs_exports_find(asked->open.token, true, &found))
        return refuse_open(asked, fd, -ENOENT);
    error = make_ready(found.range, stopped);
    while (error == 0 && asked->sent < found.range->chunk_count) {
        if (!gs_handover_begin())
            return -EAGAIN;
        error = send_chunks(asked, &found, fd);
        gs_handover_end();
    }
    if (error == -EAGAIN && now - asked->since < WAIT_NS)
        return -EAGAIN;
    if (error == 0)
        gs_log("memory at %#llx is open in another process: it stays in place",
               (unsigned long long)found.range->node.base);
    return error == 0 ? 0 : refuse_open(asked, fd, error == -EAGAIN ? -ETIMEDOUT : error);
}

/* Partners that are not patched get the driver's error, and nothing else tells the user why. */
static void remark_unasked(uint64_t now)
{
    const uint64_t since = gs_exports_unasked_since();

    if (self.said || since == 0 || now < since || now - since < UNASKED_NS)
        return;
    self.said = true;
    gs_daemon_say("nobody has opened memory that this program exported (CUDA IPC): if its "
                  "partner is not patched, run both with GPUSHARE_MEMORY=native");
}

uint64_t gs_exporter_step(uint64_t now, bool stopped, int fd)
{
    struct asked **at = &self.asked;

    look_at_shares(now);
    remark_unasked(now);
    self.needs_stop = false;
    while (*at != NULL && fd >= 0)
        if (answer_asked(*at, now, stopped, fd) == -EAGAIN)
            at = &(*at)->next;
        else
            drop_asked(at);
    self.waits = self.asked != NULL;
    if (self.waits)
        return self.needs_stop ? MS : 5 * MS;
    return self.shares != NULL ? LOOK_NS : UINT64_MAX;
}

void gs_exporter_after_fork(void)
{
    gs_exporter_lost();
    while (self.shares != NULL) { /* these are the parent's memory */
        struct share *share = self.shares;

        self.shares = share->next;
        gs_own_fd_close(&share->open);
        free(share);
    }
    self.said = false;
}

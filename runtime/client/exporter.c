/* SPDX-License-Identifier: Apache-2.0
 *
 * exporter.c: owns the requests of other processes to open memory of this process. Client thread
 * only. A range with a handle is disposed of by this thread only, so a range that was found stays
 * for the whole step.
 */
#include "runtime/client/exporter.h"
#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"
#include "runtime/memory/exports.h"
#include "runtime/range/handover.h"
#include "runtime/swap/remake.h"

#define MS              1000000ull
#define WAIT_NS         (30000 * MS) /* the opener does not wait for longer either */
#define LOOK_NS         (250 * MS)   /* from look to look whether it is still open */
#define LOOK_STOPPED_NS (30 * MS)
#define UNASKED_NS      (10000 * MS)
#define ASKED_MOST      256u
#define REMADE_ONCE     8u /* chunks in one round */

struct asked {
    struct asked *next;
    struct gs_wire_open open;
    uint64_t since;
    uint32_t sent; /* chunks */
};

static struct {
    struct asked *asked;
    unsigned asked_count;
    uint64_t looked_at;
    bool waits, needs_stop, said;
} self GS_ZERO_IN_CHILD;

bool gs_exporter_waits(void)
{
    return self.waits;
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

/* --- answers --- */

static void look_at_shares(uint64_t now)
{
    struct gs_share *ended;

    if (now - self.looked_at < LOOK_STOPPED_NS)
        return;
    self.looked_at = now;
    while ((ended = gs_shares_ended()) != NULL)
        gs_exports_unshare(ended);
}

static struct gs_share *begin_share(const struct asked *asked, const struct gs_exported *found,
                                    int *line, int *error)
{
    struct gs_share *share = gs_exports_share(found, asked->open.token, line, error);
    uint8_t number[16];

    if (share != NULL) {
        gs_exports_number(number);
        gs_evidence_share(number);
    }
    return share;
}

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
    struct gs_share *share = NULL;
    int error, line = -1;

    describe_share(&message, asked, found);
    error = lend_chunks(found->range, asked->sent, &with, made) ? 0 : -EIO;
    if (error == 0 && asked->sent == 0)
        share = begin_share(asked, found, &line, &error);
    message.count = with.count;
    if (error == 0) {
        if (share != NULL)
            with.fd[with.count++] = line;
        error = gs_connect_send(fd, &message, sizeof message, &with);
        with.count = message.count;
    }
    for (unsigned i = 0; i < with.count; i++)
        if (made[i])
            close(with.fd[i]);
    if (share != NULL)
        close(line);
    if (error == 0)
        asked->sent += message.count;
    else if (share != NULL)
        gs_exports_unshare(share);
    return error;
}

/* Brings the range in, and makes memory of which descriptors can be made. What lies beyond the
 * card comes back by itself (swap/beyond.c). -EAGAIN: not ready yet. */
static int make_ready(struct gs_range *range, bool stopped)
{
    CUresult result = CUDA_SUCCESS;
    bool whole = GS_WITH_MEMORY(gs_range_is_whole(range) && range->over == 0);

    if (!whole || range->moving != 0)
        return -EAGAIN;
    if (atomic_load_explicit(&gs_runtime.partial, memory_order_acquire) &&
        !gs_remake_is_done(range))
        return -EIO; /* calls that go past gpushare may use it while it is copied */
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
    const bool needed_stop = self.needs_stop;
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
        return !self.needs_stop ? 5 * MS : needed_stop ? MS : 0; /* 0: it stops at once */
    if (!gs_shares_any())
        return UINT64_MAX;
    return stopped ? LOOK_STOPPED_NS : LOOK_NS; /* what ends may have to move out */
}

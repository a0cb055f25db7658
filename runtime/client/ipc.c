/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.c: memory that processes open by handles of CUDA IPC, on both sides. First the exporter's: owns
 * the requests of other processes to open memory of this process. Client thread only. A range with a
 * handle is disposed of by this thread only, so a range that was found stays for the whole step.
 */
#include "runtime/client/ipc.h"
#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"
#include "runtime/range/handover.h"
#include "runtime/range/vmm.h"
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

static int refuse_open(const struct asked *asked, int fd, int code)
{
    struct gs_wire_share share = {.number = asked->open.number, .code = code};

    gs_connect_header(&share.header, GS_WIRE_SHARE, sizeof share);
    return gs_connect_send(fd, &share, sizeof share, NULL);
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
    const struct gs_range *range = found->range;
    struct gs_wire_share message = {.number = asked->open.number,
                                    .bytes = range->reserved,
                                    .chunk_bytes = range->chunk_bytes,
                                    .offset = found->base - range->node.base,
                                    .size = found->bytes,
                                    .first = asked->sent};
    struct gs_share *share = NULL;
    int error, line = -1;
    uint8_t number[16];

    gs_connect_header(&message.header, GS_WIRE_SHARE, sizeof message);
    memcpy(message.uuid, range->device->uuid, sizeof message.uuid);
    error = lend_chunks(range, asked->sent, &with, made) ? 0 : -EIO;
    if (error == 0 && asked->sent == 0)
        share = gs_exports_share(found, asked->open.token, &line, &error);
    if (share != NULL) {
        gs_exports_number(number);
        gs_evidence_share(number);
    }
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

uint64_t gs_exporter_step(uint64_t now, bool stopped, int fd)
{
    const uint64_t unasked_since = gs_exports_unasked_since();
    const bool needed_stop = self.needs_stop;
    struct asked **at = &self.asked;
    struct gs_share *ended;

    if (now - self.looked_at >= LOOK_STOPPED_NS) {
        self.looked_at = now;
        while ((ended = gs_shares_ended()) != NULL)
            gs_exports_unshare(ended);
    }
    /* partners that are not patched get the driver's error, and nothing else tells the user why */
    if (!self.said && unasked_since != 0 && now >= unasked_since &&
        now - unasked_since >= UNASKED_NS) {
        self.said = true;
        gs_daemon_say("nobody has opened memory that this program exported (CUDA IPC): if its "
                      "partner is not patched, run both with GPUSHARE_MEMORY=native");
    }
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

/* Owns this process's requests to open memory that have no answer yet. State: their list, under
 * its own mutex (GS_LOCK_OPENER). A request belongs to the thread that opens, except while it is
 * `busy`: then the client thread imports the memory that has come, without the mutex. The client
 * thread makes the imports so that no descriptor is open between its arrival and its use when
 * some thread forks (range/handover.h). */

#define GS_OPENER_WAIT_NS 30000000000ull

#define ANSWER_LOOK_NS 10000000 /* from look to look whether there is a daemon */
#define BUSY_NS        20000
#define AGAIN_NS       20000000
#define CHUNKS_MOST    (1u << 20)

struct request {
    struct request *next;
    const struct gs_ipc_handle *handle;
    struct gs_opening *opening;
    uint32_t number; /* 0: not sent on this connection */
    bool busy, done;
    int code;
    pthread_cond_t changed;
};

static pthread_mutex_t lock GS_ZERO_IN_CHILD;
static struct request *requests GS_ZERO_IN_CHILD;
static uint32_t last_number;

/* --- the thread that opens --- */

/* Takes the request out of the list, unless the client thread is working on it. */
static bool remove_request(struct request *request)
{
    GS_HOLD(&lock, GS_LOCK_OPENER);
    bool removed = !request->busy;

    for (struct request **at = &requests; removed && *at != NULL; at = &(*at)->next)
        if (*at == request) {
            *at = request->next;
            break;
        }
    return removed;
}

/* Waits for the answer, until that time at most. */
static bool wait_for(struct request *request, uint64_t until)
{
    const struct timespec time = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
    GS_UNCANCELLED cancel = gs_cancel_off();
    bool done;

    gs_lock(&lock, GS_LOCK_OPENER);
    while (!request->done)
        if (pthread_cond_timedwait(&request->changed, &lock, &time) != 0)
            break;
    done = request->done;
    gs_unlock(&lock, GS_LOCK_OPENER);
    return done;
}

static int ask_once(const struct gs_ipc_handle *handle, struct gs_opening *opening,
                    uint64_t until)
{
    struct request request = {.handle = handle, .opening = opening, .code = -ETIMEDOUT};

    gs_condition_init(&request.changed);
    GS_WITH(&lock, GS_LOCK_OPENER, request.next = requests; requests = &request);
    gs_worker_wake();
    while (!wait_for(&request, gs_now() + ANSWER_LOOK_NS) && gs_now() < until)
        if (gs_daemon_is_absent()) {
            request.code = -ECONNREFUSED;
            break;
        }
    while (!remove_request(&request))
        gs_pause(BUSY_NS);
    pthread_cond_destroy(&request.changed);
    return request.code;
}

int gs_opener_get(const struct gs_ipc_handle *handle, struct gs_opening *opening)
{
    const uint64_t until = gs_now() + GS_OPENER_WAIT_NS;
    int code = ask_once(handle, opening, until);

    while (code == -EAGAIN && gs_now() < until) {
        gs_opening_drop(opening);
        gs_pause(AGAIN_NS);
        code = ask_once(handle, opening, until);
    }
    if (code != 0)
        gs_opening_drop(opening);
    else
        gs_evidence_share(handle->exporter);
    return code;
}

/* --- the client thread --- */

void gs_opener_send(int fd)
{
    struct gs_wire_open open = {.number = 0};

    if (fd < 0)
        return;
    gs_connect_header(&open.header, GS_WIRE_OPEN, sizeof open);
    GS_HOLD(&lock, GS_LOCK_OPENER);
    for (struct request *each = requests; each != NULL; each = each->next) {
        if (each->number != 0 || each->done)
            continue;
        last_number += last_number == UINT32_MAX ? 2 : 1;
        open.number = last_number;
        open.pid = each->handle->pid;
        memcpy(open.token, each->handle->token, sizeof open.token);
        if (gs_connect_send(fd, &open, sizeof open, NULL) == 0) /* else in the next round */
            each->number = open.number;
    }
}

unsigned gs_opener_expects(void)
{
    GS_HOLD(&lock, GS_LOCK_OPENER);

    return requests != NULL ? GS_SHARE_MOST + 1 : 0;
}

/* The first part of an answer describes the whole. */
static int begin_answer(struct gs_opening *opening, const struct gs_wire_share *share,
                        struct gs_descriptors *with)
{
    const uint64_t chunks =
        share->chunk_bytes == 0 ? 0 : (share->bytes - 1) / share->chunk_bytes + 1;
    struct stat what;

    if (share->bytes == 0 || share->bytes > 1ull << 48 || chunks == 0 || chunks > CHUNKS_MOST ||
        share->size == 0 || share->size > share->bytes ||
        share->offset > share->bytes - share->size)
        return -EPROTO;
    opening->handles = calloc(chunks, sizeof opening->handles[0]);
    if (opening->handles == NULL)
        return -ENOMEM;
    memcpy(opening->uuid, share->uuid, sizeof opening->uuid);
    opening->bytes = share->bytes;
    opening->chunk_bytes = share->chunk_bytes;
    opening->offset = share->offset;
    opening->size = share->size;
    opening->chunk_count = (uint32_t)chunks;
    /* an exporter of an earlier release sends a pipe */
    opening->tells = fstat(with->fd[with->count - 1], &what) == 0 && S_ISSOCK(what.st_mode);
    gs_own_fd_set(&opening->lifeline, with->fd[--with->count]);
    return 0;
}

static int import_chunks(struct gs_opening *opening, const struct gs_descriptors *with)
{
    CUresult result = gs_context_push(opening->context);

    if (result != CUDA_SUCCESS)
        return -EIO;
    for (unsigned i = 0; i < with->count && result == CUDA_SUCCESS; i++) {
        result = gs_driver.cuMemImportFromShareableHandle(
            &opening->handles[opening->got], (void *)(uintptr_t)with->fd[i],
            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        opening->got += result == CUDA_SUCCESS;
    }
    gs_context_pop();
    if (result != CUDA_SUCCESS)
        gs_log("memory of another process cannot be imported: CUresult %d", result);
    return result == CUDA_SUCCESS ? 0 : -EIO;
}

/* -EINPROGRESS: more of the answer is to come. If a part lacks descriptors (a thread forks, or
 * this process may have no more), the whole is requested again. */
static int take_answer(struct gs_opening *opening, const struct gs_wire_share *share,
                       struct gs_descriptors *with)
{
    int code;

    if (share->code != 0)
        return share->code < 0 ? share->code : -EPROTO;
    if (share->count == 0 || share->count > GS_SHARE_MOST || share->first != opening->got)
        return -EPROTO;
    if (with->count != share->count + (share->first == 0))
        return -EAGAIN;
    code = share->first == 0 ? begin_answer(opening, share, with) : 0;
    if (code == 0 && with->count > opening->chunk_count - opening->got)
        code = -EPROTO;
    if (code == 0)
        code = import_chunks(opening, with);
    return code == 0 && opening->got < opening->chunk_count ? -EINPROGRESS : code;
}

/* Under the lock. */
static void finish_request(struct request *request, int code)
{
    request->code = code;
    request->done = true;
    pthread_cond_signal(&request->changed);
}

void gs_opener_heard(const struct gs_wire_share *share, struct gs_descriptors *with)
{
    struct request *request;
    int code;

    gs_lock(&lock, GS_LOCK_OPENER);
    for (request = requests; request != NULL; request = request->next)
        if (request->number == share->number && share->number != 0 && !request->done)
            break;
    if (request != NULL)
        request->busy = true;
    gs_unlock(&lock, GS_LOCK_OPENER);
    if (request == NULL)
        return; /* the thread no longer waits */
    code = take_answer(request->opening, share, with);
    gs_lock(&lock, GS_LOCK_OPENER);
    request->busy = false;
    if (code != -EINPROGRESS)
        finish_request(request, code);
    gs_unlock(&lock, GS_LOCK_OPENER);
}

void gs_opener_lost(void)
{
    gs_lock(&lock, GS_LOCK_OPENER);
    for (struct request *each = requests; each != NULL; each = each->next) {
        if (each->number != 0 && !each->done)
            finish_request(each, -EAGAIN);
    }
    gs_unlock(&lock, GS_LOCK_OPENER);
}

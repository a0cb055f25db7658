/* SPDX-License-Identifier: Apache-2.0
 *
 * opener.c: owns this process's requests to open memory that have no answer yet.
 *
 * State: their list, under its own mutex (GS_LOCK_OPENER). A request belongs to the thread that
 * opens, except while it is `busy`: then the client thread imports the memory that has come,
 * without the mutex. The client thread makes the imports so that no descriptor is open between
 * its arrival and its use when some thread forks (range/handover.h).
 */
#include "runtime/client/opener.h"

#include "runtime/client/connect.h"
#include "runtime/client/evidence.h"
#include "runtime/range/vmm.h"

#define LOOK_NS     10000000 /* from look to look whether there is a daemon */
#define BUSY_NS     20000
#define AGAIN_NS    20000000
#define CHUNKS_MOST (1u << 20)

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

static void add_request(struct request *request)
{
    GS_WITH(&lock, GS_LOCK_OPENER, request->next = requests; requests = request);
    gs_worker_wake();
}

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
    add_request(&request);
    while (!wait_for(&request, gs_now() + LOOK_NS) && gs_now() < until)
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

/* An exporter of an earlier release sends a pipe. */
static bool is_socket(int fd)
{
    struct stat what;

    return fstat(fd, &what) == 0 && S_ISSOCK(what.st_mode);
}

/* The first part of an answer describes the whole. */
static int begin_answer(struct gs_opening *opening, const struct gs_wire_share *share,
                        struct gs_descriptors *with)
{
    const uint64_t chunks =
        share->chunk_bytes == 0 ? 0 : (share->bytes - 1) / share->chunk_bytes + 1;

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
    opening->tells = is_socket(with->fd[with->count - 1]);
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

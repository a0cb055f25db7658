/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c: owns the queues: fences, and one worker thread per stream that has had work.
 *
 * Every operation has a fence. It starts when the fences it depends on are done: the one before
 * it in its stream; in the legacy stream the newest of every blocking stream, and the other way
 * round; the event of a cuStreamWaitEvent. Invariants: a stream's fences are done in order;
 * sim.progress is broadcast for each. A stream that was closed lives until its worker has
 * drained it. Operations of a context with a fault are completed without being run. Threads:
 * the queues are under sim.lock; a worker runs operations without it.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/graph.h"

#define WORKER_STACK (512u << 10) /* programs may have little address space, and many streams */

struct sim_task {
    struct sim_task *next;
    struct sim_op *op;
    struct sim_fence *fence;
    struct sim_fence **after;
    size_t after_count;
};

/* -- fences -- */

static struct sim_fence *fence_new(void)
{
    struct sim_fence *fence = calloc(1, sizeof *fence);

    if (fence)
        fence->refs = 1;
    return fence;
}

struct sim_fence *sim_fence_get(struct sim_fence *fence)
{
    if (fence)
        fence->refs++;
    return fence;
}

void sim_fence_put(struct sim_fence *fence)
{
    if (fence && --fence->refs == 0)
        free(fence);
}

void sim_fence_wait(struct sim_fence *fence)
{
    while (fence && !fence->done)
        pthread_cond_wait(&sim.progress, &sim.lock);
}

/* -- workers -- */

static bool task_ready(const struct sim_task *task)
{
    for (size_t i = 0; i < task->after_count; i++)
        if (!task->after[i]->done)
            return false;
    return true;
}

static void task_free(struct sim_task *task)
{
    for (size_t i = 0; i < task->after_count; i++)
        sim_fence_put(task->after[i]);
    free(task->after);
    sim_fence_put(task->fence);
    sim_op_put(task->op);
    free(task);
}

static void stream_free(struct sim_stream *stream)
{
    struct sim_stream **link = &stream->context->streams;

    while (*link && *link != stream)
        link = &(*link)->next;
    if (*link)
        *link = stream->next;
    sim_fence_put(stream->last);
    free(stream->capture_tip.item);
    pthread_cond_destroy(&stream->work);
    free(stream);
    pthread_cond_broadcast(&sim.progress);
}

static void run_task(struct sim_context *context, const struct sim_task *task)
{
    const bool dead = __atomic_load_n(&context->sticky, __ATOMIC_RELAXED) != CUDA_SUCCESS;

    pthread_mutex_unlock(&sim.lock);
    const CUresult result =
        dead || !task->op->run ? CUDA_SUCCESS : sim_guarded_run(task->op, context);
    if (result) {
        sim_context_fault(context, result);
        sim_log("%s failed on the card: %s (%d)", task->op->name, sim_error_name(result),
                (int)result);
    }
    pthread_mutex_lock(&sim.lock);
}

static void *run_worker(void *argument)
{
    struct sim_stream *stream = argument;

    pthread_mutex_lock(&sim.lock);
    for (;;) {
        struct sim_task *task = stream->head;
        if (!task && stream->closing)
            break;
        if (!task) {
            pthread_cond_wait(&stream->work, &sim.lock);
            continue;
        }
        if (!task_ready(task)) {
            pthread_cond_wait(&sim.progress, &sim.lock);
            continue;
        }
        run_task(stream->context, task);
        stream->head = task->next;
        if (!stream->head)
            stream->tail = NULL;
        task->fence->done_ns = sim_now_ns();
        task->fence->done = true;
        __atomic_fetch_sub(&sim.own->working, 1, __ATOMIC_SEQ_CST);
        task_free(task);
        pthread_cond_broadcast(&sim.progress);
    }
    stream_free(stream);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static int start_worker(struct sim_stream *stream)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;

    if (stream->running)
        return 0;
    sigfillset(&all);
    sigdelset(&all, SIGSEGV);
    sigdelset(&all, SIGBUS);
    sigdelset(&all, SIGFPE);
    sigdelset(&all, SIGILL);
    sigdelset(&all, SIGABRT);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the application's signals are not for us */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, WORKER_STACK);
    const int rc = pthread_create(&thread, &attributes, run_worker, stream);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    stream->running = rc == 0;
    return -rc;
}

/* -- streams -- */

struct sim_stream *sim_stream_new(struct sim_context *context, unsigned flags, int priority)
{
    struct sim_stream *stream = calloc(1, sizeof *stream);

    if (!stream)
        return NULL;
    if (pthread_cond_init(&stream->work, NULL)) {
        free(stream);
        return NULL;
    }
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = sim.next_id++;
    stream->next = context->streams;
    context->streams = stream;
    return stream;
}

void sim_stream_close(struct sim_stream *stream)
{
    sim_handle_remove(stream);
    if (stream->capture)
        sim_capture_invalidate(stream->capture);
    stream->capture = NULL;
    stream->thread = NULL;
    stream->closing = true;
    if (stream->running)
        pthread_cond_signal(&stream->work);
    else
        stream_free(stream);
}

bool sim_stream_idle(const struct sim_stream *stream)
{
    if (stream->last && !stream->last->done)
        return false;
    if (!stream->legacy)
        return true;
    for (const struct sim_stream *other = stream->context->streams; other; other = other->next)
        if (!(other->flags & CU_STREAM_NON_BLOCKING) && other->last && !other->last->done)
            return false;
    return true;
}

/* What a wait in the context ends with; it may be gone by then. */
static CUresult context_result(const struct sim_context *context)
{
    return sim_handle_is(context, SIM_KIND_CONTEXT)
               ? __atomic_load_n(&context->sticky, __ATOMIC_RELAXED)
               : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_streams_wait(struct sim_context *context, bool blocking_only)
{
    struct sim_fence **fences = NULL;
    size_t count = 0, filled = 0;

    for (const struct sim_stream *stream = context->streams; stream; stream = stream->next)
        count++;
    fences = calloc(count + 1, sizeof(struct sim_fence *));
    if (!fences)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* first all, then wait: what is submitted meanwhile does not count */
    for (struct sim_stream *stream = context->streams; stream; stream = stream->next)
        if (!blocking_only || !(stream->flags & CU_STREAM_NON_BLOCKING))
            fences[filled++] = sim_fence_get(stream->last);
    for (size_t i = 0; i < filled; i++) {
        sim_fence_wait(fences[i]);
        sim_fence_put(fences[i]);
    }
    free(fences);
    return context_result(context);
}

CUresult sim_stream_wait(struct sim_stream *stream)
{
    struct sim_context *context = stream->context;
    struct sim_fence *fence = NULL;

    if (stream->legacy) /* what the blocking streams have comes before it */
        return sim_streams_wait(context, true);
    fence = sim_fence_get(stream->last);
    sim_fence_wait(fence);
    sim_fence_put(fence);
    return context_result(context);
}

static struct sim_stream *thread_stream(struct sim_context *context)
{
    struct sim_stream *stream = context->streams;

    while (stream && stream->thread != &sim_thread)
        stream = stream->next;
    if (stream)
        return stream;
    stream = sim_stream_new(context, 0, 0);
    if (stream) {
        stream->thread = &sim_thread;
        sim_thread_register();
    }
    return stream;
}

void sim_thread_end(const void *thread)
{
    pthread_mutex_lock(&sim.lock);
    for (struct sim_context *context = sim.state == SIM_READY ? sim.contexts : NULL; context;
         context = context->next) {
        struct sim_stream *stream = context->streams;
        while (stream && stream->thread != thread)
            stream = stream->next;
        if (stream)
            sim_stream_close(stream);
    }
    pthread_mutex_unlock(&sim.lock);
}

struct sim_stream *sim_stream(struct sim_call *call, CUstream handle, bool per_thread)
{
    struct sim_stream *stream = (struct sim_stream *)handle;

    if (!call->context &&
        (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)) {
        call->result = CUDA_ERROR_INVALID_CONTEXT; /* the others have a context of their own */
        return NULL;
    }
    if (handle == CU_STREAM_PER_THREAD || (!handle && per_thread))
        stream = thread_stream(call->context);
    else if (!handle || handle == CU_STREAM_LEGACY)
        stream = call->context->legacy;
    else if (!sim_handle_is(stream, SIM_KIND_STREAM))
        stream = NULL;
    if (!stream)
        call->result = handle && handle != CU_STREAM_PER_THREAD ? CUDA_ERROR_INVALID_HANDLE
                                                                : CUDA_ERROR_OUT_OF_MEMORY;
    return stream;
}

/* -- submission -- */

static int task_after(struct sim_task *task, struct sim_fence *fence)
{
    if (!fence || fence->done)
        return 0;
    struct sim_fence **after =
        realloc(task->after, (task->after_count + 1) * sizeof(struct sim_fence *));
    if (!after)
        return -ENOMEM;
    task->after = after;
    after[task->after_count++] = sim_fence_get(fence);
    return 0;
}

static int task_depend(struct sim_task *task, const struct sim_stream *stream)
{
    struct sim_context *context = stream->context;
    int rc = 0;

    if (stream->flags & CU_STREAM_NON_BLOCKING)
        return 0;
    if (!stream->legacy)
        return task_after(task, context->legacy->last);
    for (const struct sim_stream *other = context->streams; other && !rc; other = other->next)
        if (other != stream && !(other->flags & CU_STREAM_NON_BLOCKING))
            rc = task_after(task, other->last);
    return rc;
}

static CUresult enqueue_op(struct sim_stream *stream, struct sim_op *op,
                           struct sim_fence *after, struct sim_fence **fence)
{
    struct sim_task *task = calloc(1, sizeof *task);

    if (!task) {
        sim_op_put(op);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    task->op = op;
    task->fence = fence_new();
    if (!task->fence || task_depend(task, stream) || task_after(task, after) ||
        start_worker(stream)) {
        task_free(task);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (stream->tail)
        stream->tail->next = task;
    else
        stream->head = task;
    stream->tail = task;
    __atomic_fetch_add(&sim.own->working, 1, __ATOMIC_SEQ_CST);
    sim_fence_put(stream->last);
    stream->last = sim_fence_get(task->fence);
    if (fence)
        *fence = sim_fence_get(task->fence);
    pthread_cond_signal(&stream->work);
    return CUDA_SUCCESS;
}

CUresult sim_submit_after(struct sim_call *call, struct sim_stream *stream, struct sim_op *op,
                          struct sim_fence *after, struct sim_fence **fence)
{
    CUresult result = op ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    if (!stream) {
        sim_op_put(op);
        return call->result;
    }
    result = result ? result : sim_capture_check_submit(stream);
    if (result) {
        sim_op_put(op);
        return result;
    }
    return enqueue_op(stream, op, after, fence);
}

CUresult sim_submit(struct sim_call *call, struct sim_stream *stream, struct sim_op *op)
{
    if (stream && op && stream->capture)
        return sim_capture_add(stream, op);
    return sim_submit_after(call, stream, op, NULL, NULL);
}

CUresult sim_submit_wait(struct sim_call *call, struct sim_stream *stream, struct sim_op *op)
{
    struct sim_fence *fence = NULL;

    if (stream && op && stream->capture) { /* waiting for what only gets recorded */
        sim_capture_invalidate(stream->capture);
        sim_op_put(op);
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    const struct sim_context *context = stream ? stream->context : NULL;
    const CUresult result = sim_submit_after(call, stream, op, NULL, &fence);
    if (result)
        return result;
    sim_fence_wait(fence);
    sim_fence_put(fence);
    return context_result(context);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c: one pass over the file: reads, sums up, changes, writes, and checks it.
 *
 * Two or three threads work one behind the other. The reader fills the chunks of a small ring
 * from the original, sums them up and applies the changes. The writer (the caller) writes the
 * chunks. The checker reads the new file back; it runs only if the run waits for the disk anyway.
 * So a file of any size needs a few MiB, and each byte is touched while the cache still holds it.
 * Chunks have 1 MiB: large writes get large pages in the page cache, which makes this cheaper
 * than copy_file_range() within one file system (bench/patch_bench.py). If extents can be shared
 * (reflink), only changes are written.
 */
#include "rewriter/output/copy.h"
#include "rewriter/output/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The proof that a new file is the original except for the planned changes.
 *
 * A stretch that a change touches is compared byte by byte with the original and the
 * changes. Every other stretch must be the original's. With `whole` it is read and summed
 * up, and the sum must be what the reader of the original got. Without `whole` we trust the
 * kernel to have written the given bytes, as cp does. One thread at a time. */

#define STRETCH ((size_t)256 * 1024) /* bytes compared at a time; two stay in the cache */

int elf_readback_init(struct elf_readback *back, uint64_t image_end, struct gs_err *err)
{
    back->buffers = aligned_alloc(STRETCH, 2 * STRETCH);
    if (back->buffers == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", back->original->name);
    elf_sums_init(&back->sums, image_end);
    return 0;
}

void elf_readback_deinit(struct elf_readback *back)
{
    free(back->buffers);
    back->buffers = NULL;
}

static int refuse_difference(const struct elf_readback *back, uint64_t offset,
                             struct gs_err *err)
{
    return elf_distrust(back->original->name, err,
                        "the new file is not as planned (near offset 0x%llx)",
                        (unsigned long long)offset);
}

static bool touches_range(const struct elf_change *changes, size_t count, uint64_t from,
                          uint64_t to)
{
    for (size_t i = 0; i < count; i++)
        if (changes[i].offset < to && changes[i].offset + changes[i].length > from)
            return true;
    return false;
}

static int check_touched(struct elf_readback *back, uint64_t at, size_t n, struct gs_err *err)
{
    uint8_t *expected = back->buffers, *found = back->buffers + STRETCH;
    int ret = elf_source_read(back->original, at, expected, n, err);

    ret = ret ?: elf_source_read(&back->new, at, found, n, err);
    if (ret != 0)
        return ret;
    if (back->whole)
        elf_sums_update(&back->sums, expected, n);
    if (back->plan != NULL)
        elf_changes_apply(back->plan->changes.list, back->plan->changes.count, at, expected, n);
    return memcmp(expected, found, n) == 0 ? 0 : refuse_difference(back, at, err);
}

int elf_readback_check(struct elf_readback *back, uint64_t from, uint64_t to,
                       struct gs_err *err)
{
    int ret = 0;

    for (uint64_t at = from; ret == 0 && at < to;) {
        size_t n = to - at < STRETCH ? (size_t)(to - at) : STRETCH;

        if (touches_range(back->original->undo, back->original->undo_count, at, at + n) ||
            (back->plan != NULL &&
             touches_range(back->plan->changes.list, back->plan->changes.count, at, at + n))) {
            ret = check_touched(back, at, n, err);
        } else if (back->whole) {
            ret = elf_source_read(&back->new, at, back->buffers, n, err);
            elf_sums_update(&back->sums, back->buffers, ret == 0 ? n : 0);
        }
        at += n;
    }
    return ret;
}

static int check_tail(struct elf_readback *back, struct gs_err *err)
{
    const struct elf_plan *plan = back->plan;
    uint64_t size = plan->tail.end - plan->tail.segment.offset;
    int ret = 0;

    for (uint64_t at = 0; ret == 0 && at < size;) {
        size_t n = size - at < STRETCH ? (size_t)(size - at) : STRETCH;

        ret =
            elf_source_read(&back->new, plan->tail.segment.offset + at, back->buffers, n, err);
        if (ret == 0 && memcmp(plan->tail.bytes + at, back->buffers, n) != 0)
            ret = refuse_difference(back, plan->tail.segment.offset + at, err);
        at += n;
    }
    return ret;
}

int elf_readback_finish(struct elf_readback *back, const uint8_t whole[ELF_CHECKSUM_SIZE],
                        struct gs_err *err)
{
    uint8_t found[ELF_CHECKSUM_SIZE], image[ELF_CHECKSUM_SIZE];
    struct stat st;
    int ret = 0;

    if (back->whole) {
        elf_sums_final(&back->sums, found, image);
        if (memcmp(found, whole, sizeof found) != 0)
            return gs_err_set(
                err, -EIO,
                "%s: the new file differs from the original outside the planned changes "
                "(is another process writing to it?); the old file is left unchanged, "
                "try again",
                back->original->name);
    }
    if (back->plan != NULL && back->plan->tail.end > back->original->size)
        ret = check_tail(back, err);
    if (ret == 0 && (fstat(back->new.fd, &st) != 0 || (uint64_t)st.st_size != back->new.size))
        ret = refuse_difference(back, back->new.size, err);
    return ret;
}

#define CHUNK ((uint64_t)1 << 20) /* bytes */
#define RING  8    /* chunks between reader and writer; with 4 they often wait under load */
#define PAGE  4096 /* copying to and from aligned memory is faster */

struct pipe {
    const struct elf_copy *copy;
    uint64_t size; /* of the original */
    bool shared;   /* the new file has the old one's extents already */
    uint8_t *ring; /* RING * CHUNK */
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t read, written; /* under lock: bytes done by the reader, the writer */
    bool stopped;           /* under lock: one of them failed */
    struct elf_sums sums;   /* the reader's until it is joined */
    struct gs_err read_err;
    int read_ret;
    struct elf_readback back; /* the checker's until it is joined */
    struct gs_err check_err;
    int check_ret;
};

static uint64_t chunk_end(const struct pipe *p, uint64_t at)
{
    return p->size - at < CHUNK ? p->size : at + CHUNK;
}

static uint8_t *ring_slot(const struct pipe *p, uint64_t at)
{
    return p->ring + at / CHUNK % RING * CHUNK;
}

static void advance_counter(struct pipe *p, uint64_t *counter, uint64_t to, int ret)
{
    pthread_mutex_lock(&p->lock);
    if (ret == 0)
        *counter = to;
    else
        p->stopped = true;
    pthread_cond_broadcast(&p->moved);
    pthread_mutex_unlock(&p->lock);
}

/* Waits until *counter has reached `until`; false if it never will. */
static bool await_counter(struct pipe *p, const uint64_t *counter, uint64_t until)
{
    bool reached;

    pthread_mutex_lock(&p->lock);
    while (*counter < until && !p->stopped)
        pthread_cond_wait(&p->moved, &p->lock);
    reached = *counter >= until && !p->stopped;
    pthread_mutex_unlock(&p->lock);
    return reached;
}

static void *read_all(void *argument)
{
    struct pipe *p = argument;

    for (uint64_t at = 0; at < p->size && p->read_ret == 0;) {
        uint64_t end = chunk_end(p, at);
        size_t n = (size_t)(end - at);
        uint8_t *bytes = ring_slot(p, at);

        if (!await_counter(p, &p->written, end > RING * CHUNK ? end - RING * CHUNK : 0))
            break;
        p->read_ret = elf_source_read(p->copy->original, at, bytes, n, &p->read_err);
        if (p->read_ret == 0) {
            elf_sums_update(&p->sums, bytes, n);
            if (p->copy->plan != NULL)
                elf_changes_apply(p->copy->plan->changes.list, p->copy->plan->changes.count, at,
                                  bytes, n);
        }
        advance_counter(p, &p->read, end, p->read_ret);
        at = end;
    }
    return NULL;
}

static void *check_all(void *argument)
{
    struct pipe *p = argument;

    for (uint64_t at = 0; at < p->size && p->check_ret == 0;) {
        uint64_t end = chunk_end(p, at);

        if (!await_counter(p, &p->written, end))
            break;
        p->check_ret = elf_readback_check(&p->back, at, end, &p->check_err);
        if (p->check_ret != 0)
            advance_counter(p, &p->written, end, p->check_ret);
        at = end;
    }
    return NULL;
}

/* Writes the parts of [at, end) that a change touches. */
static int write_touched(const struct pipe *p, const struct elf_change *changes, size_t count,
                         uint64_t at, uint64_t end, struct gs_err *err)
{
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < count; i++) {
        uint64_t from = changes[i].offset > at ? changes[i].offset : at;
        uint64_t to = changes[i].offset + changes[i].length;

        if (to > end)
            to = end;
        if (from < to)
            ret = elf_output_write(p->copy->output, from, ring_slot(p, at) + (from - at),
                                   (size_t)(to - from), err);
        elf_fault();
    }
    return ret;
}

static int write_chunk(const struct pipe *p, uint64_t at, uint64_t end, struct gs_err *err)
{
    const struct elf_source *original = p->copy->original;
    int ret;

    if (!p->shared)
        return elf_output_write(p->copy->output, at, ring_slot(p, at), (size_t)(end - at), err);
    ret = write_touched(p, original->undo, original->undo_count, at, end, err);
    if (p->copy->plan != NULL)
        ret = ret
                  ?: write_touched(p, p->copy->plan->changes.list, p->copy->plan->changes.count,
                                   at, end, err);
    return ret;
}

static int write_all(struct pipe *p, struct gs_err *err)
{
    struct elf_output *output = p->copy->output;
    int ret = 0;

    for (uint64_t at = 0; ret == 0 && at < p->size;) {
        uint64_t end = chunk_end(p, at);

        if (!await_counter(p, &p->read, end))
            break;
        ret = write_chunk(p, at, end, err);
        elf_fault();
        if (ret == 0 && p->copy->sync) /* only a hint: fsync is what counts */
            (void)sync_file_range(output->fd, (off_t)at, (off_t)(end - at),
                                  SYNC_FILE_RANGE_WRITE);
        advance_counter(p, &p->written, end, ret);
        at = end;
    }
    return ret;
}

/* Reads and writes, and checks on the way if every byte is to be checked. */
static int run_threads(struct pipe *p, struct gs_err *err)
{
    pthread_t reader, checker = 0;
    bool whole = p->back.whole;
    int ret = -pthread_create(&reader, NULL, read_all, p);

    if (ret != 0)
        return gs_err_errno(err, ret, "%s: cannot start a thread", p->copy->original->name);
    if (whole)
        ret = -pthread_create(&checker, NULL, check_all, p);
    if (ret != 0) {
        advance_counter(p, &p->written, 0, ret);
        pthread_join(reader, NULL);
        return gs_err_errno(err, ret, "%s: cannot start a thread", p->copy->original->name);
    }
    ret = write_all(p, err);
    pthread_join(reader, NULL);
    if (whole)
        pthread_join(checker, NULL);
    else if (ret == 0 && p->read_ret == 0)
        check_all(p);
    if (ret == 0 && p->read_ret != 0)
        ret = gs_err_set(err, p->read_ret, "%s", p->read_err.text);
    if (ret == 0 && p->check_ret != 0)
        ret = gs_err_set(err, p->check_ret, "%s", p->check_err.text);
    return ret;
}

static int run_copy(struct pipe *p, struct elf_digests *digests, struct gs_err *err)
{
    const struct elf_plan *plan = p->copy->plan;
    int ret = elf_output_share(p->copy->output, p->copy->original->fd, p->size, err);

    p->shared = ret > 0;
    p->back.whole = p->copy->sync && !p->shared;
    ret = ret < 0 ? ret : run_threads(p, err);
    if (ret == 0 && plan != NULL && plan->tail.end > p->size)
        ret = elf_output_write(p->copy->output, plan->tail.segment.offset, plan->tail.bytes,
                               (size_t)(plan->tail.end - plan->tail.segment.offset), err);
    elf_fault();
    elf_sums_final(&p->sums, digests->whole, digests->image);
    return ret ?: elf_readback_finish(&p->back, digests->whole, err);
}

int elf_copy_file(const struct elf_copy *copy, struct elf_digests *digests, struct gs_err *err)
{
    const struct elf_plan *plan = copy->plan;
    uint64_t size = copy->original->size;
    struct pipe p = {
        .copy = copy,
        .size = size,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .moved = PTHREAD_COND_INITIALIZER,
        .back = {.original = copy->original,
                 .plan = plan,
                 .new = {.name = copy->original->name,
                         .fd = copy->output->fd,
                         .size = plan != NULL ? plan->tail.end : size}},
    };
    int ret = elf_readback_init(&p.back, copy->image_end, err);

    p.ring = aligned_alloc(PAGE, RING * CHUNK);
    if (ret == 0 && p.ring == NULL)
        ret = gs_err_set(err, -ENOMEM, "%s: no memory", copy->original->name);
    elf_sums_init(&p.sums, copy->image_end);
    ret = ret ?: run_copy(&p, digests, err);
    free(p.ring);
    elf_readback_deinit(&p.back);
    pthread_cond_destroy(&p.moved);
    pthread_mutex_destroy(&p.lock);
    return ret;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.c: one pass over the file: copied in the kernel, changed, and checked right behind.
 *
 * Two threads. The writer (the caller) copies a stretch, puts the changes over it and raises
 * the mark; the follower reads what lies below the mark and checks it. Nothing below the mark
 * is written again. So checking costs hardly any time beside copying, and a file of any size
 * needs three small buffers.
 */
#include "rewriter/copy.h"
#include "rewriter/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define STRETCH ((uint64_t)4 << 20)  /* bytes copied at a time */
#define CHUNK   ((size_t)256 * 1024) /* bytes checked at a time; three stay in the cache */

struct follower {
    const struct elf_source *original;
    const struct elf_plan *plan; /* NULL: the original alone, and the new file is hashed */
    struct elf_source new;
    bool private; /* the new file has no name: nobody else can cut it, so it can be mapped */
    uint8_t *buffers; /* 2 * CHUNK */
    struct elf_checksum sum;
    struct gs_err err; /* the follower's until it is joined */
    int ret;           /* likewise */
    pthread_mutex_t lock;
    pthread_cond_t raised;
    uint64_t mark; /* under lock: bytes of the new file that are final */
    bool stopped;  /* under lock: no more will come */
};

static void raise_mark(struct follower *f, uint64_t mark, bool stop)
{
    pthread_mutex_lock(&f->lock);
    f->mark = mark;
    f->stopped = stop;
    pthread_cond_signal(&f->raised);
    pthread_mutex_unlock(&f->lock);
}

/* Waits until bytes from `at` on can be read; how far, or `at` when no more will come. */
static uint64_t await_mark(struct follower *f, uint64_t at)
{
    uint64_t mark;

    pthread_mutex_lock(&f->lock);
    while (f->mark <= at && !f->stopped)
        pthread_cond_wait(&f->raised, &f->lock);
    mark = f->mark;
    pthread_mutex_unlock(&f->lock);
    return mark;
}

static int differs(const struct follower *f, uint64_t offset, struct gs_err *err)
{
    return gs_err_set(
        err, -EIO,
        "%s: the new file is not what was planned (near offset 0x%llx); the old one is "
        "left alone. Please report this",
        f->original->name, (unsigned long long)offset);
}

/* Reads n bytes of original and new file and compares them. mapped: those of the new file, or
 * NULL when they must be read. */
static int check_chunk(struct follower *f, uint64_t at, size_t n, const uint8_t *mapped,
                       struct gs_err *err)
{
    uint8_t *expected = f->buffers;
    const uint8_t *found = mapped != NULL ? mapped : f->buffers + CHUNK;
    int ret = elf_source_read(f->original, at, expected, n, err);

    if (mapped == NULL)
        ret = ret ?: elf_source_read(&f->new, at, f->buffers + CHUNK, n, err);
    if (ret != 0)
        return ret;
    elf_checksum_update(&f->sum, f->plan != NULL ? expected : found, n);
    if (f->plan != NULL)
        elf_changes_apply(f->plan->changes, f->plan->change_count, at, expected, n);
    return memcmp(expected, found, n) == 0 ? 0 : differs(f, at, err);
}

static int check_stretch(struct follower *f, uint64_t from, uint64_t to)
{
    size_t length = (size_t)(to - from);
    uint8_t *mapped = MAP_FAILED;
    int ret = 0;

    if (f->private && from % STRETCH == 0)
        mapped =
            mmap(NULL, length, PROT_READ, MAP_SHARED | MAP_POPULATE, f->new.fd, (off_t)from);
    for (uint64_t at = from; ret == 0 && at < to;) {
        size_t n = to - at < CHUNK ? (size_t)(to - at) : CHUNK;

        ret =
            check_chunk(f, at, n, mapped != MAP_FAILED ? mapped + (at - from) : NULL, &f->err);
        at += n;
    }
    if (mapped != MAP_FAILED)
        munmap(mapped, length);
    return ret;
}

static void *follow(void *argument)
{
    struct follower *f = argument;
    uint64_t size = f->original->size;

    for (uint64_t at = 0; f->ret == 0 && at < size;) {
        uint64_t mark = await_mark(f, at), end = at + STRETCH < mark ? at + STRETCH : mark;

        if (mark <= at)
            break; /* the writer gave up and has the reason */
        f->ret = check_stretch(f, at, end);
        at = end;
    }
    return NULL;
}

/* Puts the parts of the changes that fall into [from, to) over the new file. */
static int write_changes(struct elf_output *output, const struct elf_change *changes,
                         size_t count, uint64_t from, uint64_t to, struct gs_err *err)
{
    int ret = 0;

    for (size_t i = 0; ret == 0 && i < count; i++) {
        uint64_t start = changes[i].offset > from ? changes[i].offset : from;
        uint64_t end = changes[i].offset + changes[i].length;

        if (end > to)
            end = to;
        if (start >= end)
            continue;
        ret = elf_output_write(output, start, changes[i].bytes + (start - changes[i].offset),
                               (size_t)(end - start), err);
        elf_fault();
    }
    return ret;
}

static int write_stretches(const struct elf_copy *copy, struct follower *f, struct gs_err *err)
{
    const struct elf_source *original = copy->original;
    uint64_t size = original->size;
    int ret = elf_output_share(copy->output, original->fd, size, err);
    bool shared = ret > 0;

    for (uint64_t at = 0; ret >= 0 && at < size;) {
        uint64_t end = size - at < STRETCH ? size : at + STRETCH;

        ret = shared ? 0 : elf_output_copy(copy->output, original->fd, at, end, err);
        elf_fault();
        ret = ret
                  ?: write_changes(copy->output, original->undo, original->undo_count, at, end,
                                   err);
        if (f->plan != NULL)
            ret = ret
                      ?: write_changes(copy->output, f->plan->changes, f->plan->change_count,
                                       at, end, err);
        if (ret == 0 && copy->background) /* only a hint: fsync decides */
            (void)sync_file_range(copy->output->fd, (off_t)at, (off_t)(end - at),
                                  SYNC_FILE_RANGE_WRITE);
        if (ret == 0)
            raise_mark(f, end, end == size);
        at = end;
    }
    return ret < 0 ? ret : 0;
}

/* The tail is written last and is small: it is read back here. */
static int write_tail(const struct elf_copy *copy, struct follower *f, struct gs_err *err)
{
    const struct elf_plan *plan = f->plan;
    uint64_t size = plan->end - plan->segment.offset;
    int ret =
        elf_output_write(copy->output, plan->segment.offset, plan->tail, (size_t)size, err);

    elf_fault();
    for (uint64_t at = 0; ret == 0 && at < size;) {
        size_t n = size - at < CHUNK ? (size_t)(size - at) : CHUNK;

        ret = elf_source_read(&f->new, plan->segment.offset + at, f->buffers, n, err);
        if (ret == 0 && memcmp(plan->tail + at, f->buffers, n) != 0)
            ret = differs(f, plan->segment.offset + at, err);
        at += n;
    }
    return ret;
}

static int check_size(const struct follower *f, struct gs_err *err)
{
    struct stat st;

    if (fstat(f->new.fd, &st) != 0 || (uint64_t)st.st_size != f->new.size)
        return differs(f, f->new.size, err);
    return 0;
}

static int run(const struct elf_copy *copy, struct follower *f, struct gs_err *err)
{
    pthread_t thread;
    int ret = pthread_create(&thread, NULL, follow, f);

    if (ret != 0)
        return gs_err_errno(err, -ret, "%s: cannot start a thread", f->original->name);
    ret = write_stretches(copy, f, err);
    raise_mark(f, ret == 0 ? f->original->size : 0, true);
    pthread_join(thread, NULL);
    if (ret == 0 && f->ret != 0)
        ret = gs_err_set(err, f->ret, "%s", f->err.text);
    if (ret == 0 && f->plan != NULL && f->plan->end > f->original->size)
        ret = write_tail(copy, f, err);
    return ret ?: check_size(f, err);
}

static int copy_checked(const struct elf_copy *copy, const struct elf_plan *plan,
                        uint8_t digest[ELF_CHECKSUM_SIZE], struct gs_err *err)
{
    struct follower f = {
        .original = copy->original,
        .plan = plan,
        .new = {.name = copy->original->name,
                .fd = copy->output->fd,
                .size = plan != NULL ? plan->end : copy->original->size},
        .private = copy->output->temporary[0] == '\0',
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .raised = PTHREAD_COND_INITIALIZER,
    };
    int ret;

    f.buffers = malloc(2 * CHUNK);
    if (f.buffers == NULL)
        return gs_err_set(err, -ENOMEM, "%s: no memory", copy->original->name);
    elf_checksum_init(&f.sum);
    ret = run(copy, &f, err);
    elf_checksum_final(&f.sum, digest);
    free(f.buffers);
    pthread_cond_destroy(&f.raised);
    pthread_mutex_destroy(&f.lock);
    return ret;
}

int elf_copy_patched(const struct elf_copy *copy, const struct elf_plan *plan,
                     uint8_t digest[ELF_CHECKSUM_SIZE], struct gs_err *err)
{
    return copy_checked(copy, plan, digest, err);
}

int elf_copy_original(const struct elf_copy *copy, uint8_t digest[ELF_CHECKSUM_SIZE],
                      struct gs_err *err)
{
    return copy_checked(copy, NULL, digest, err);
}

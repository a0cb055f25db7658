/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.c: owns the keys that this process has found. Threads of the program add some, the
 * client thread the others; it sends them all. Keys are never taken back: what was one job stays
 * one. The lock is held for a few compares only.
 */
#include "runtime/client/evidence.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lockd/protocol/wire.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/uncancelled.h"
#include "runtime/base/worker.h"
#include "runtime/client/connect.h"
#include "runtime/client/launcher.h"

#define COLLECT_NS 1000000000ull
#define LOOK_NS    1000000000ull  /* while it is new: communicators are made then */
#define LOOK_LATER 15000000000ull /* ... after YOUNG_NS of waiting */
#define YOUNG_NS   60000000000ull
#define HINTS_MOST 8                          /* pieces of host memory */
#define MAPS_MOST  ((size_t)16 * 1024 * 1024) /* bytes of the list of mappings that are read */

static struct {
    pthread_mutex_t lock;
    struct gs_evidence keys[GS_KIN_MOST];
    unsigned count, hints;
    _Atomic(unsigned) added; /* for a look without the lock */
    _Atomic(uint64_t) collect_at;
    /* client thread */
    unsigned sent;
    uint64_t look_at, waits_since, beside_since;
} self = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The group is the user's choice, or there is to be none. */
static bool is_chosen(void)
{
    const char *group = secure_getenv("GPUSHARE_GROUP");

    return group != NULL && *group != '\0';
}

static void add_key(uint32_t kind, uint64_t key, uint32_t ranks)
{
    const bool hint = kind >= GS_KIN_HINT_FIRST;
    bool known = false;

    pthread_mutex_lock(&self.lock);
    for (unsigned i = 0; i < self.count; i++)
        known = known || (self.keys[i].key == key && self.keys[i].kind == kind);
    if (!known && self.count < GS_KIN_MOST && (!hint || self.hints < HINTS_MOST)) {
        self.keys[self.count++] =
            (struct gs_evidence){.key = key, .kind = kind, .ranks = ranks};
        self.hints += hint;
        atomic_store_explicit(&self.added, self.count, memory_order_release);
    }
    pthread_mutex_unlock(&self.lock);
}

/* In a thread of the program's: it reads files of /proc, which must be no cancellation points. */
static unsigned read_launcher(struct gs_evidence *keys)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    const int saved = errno;
    const unsigned count = gs_launcher_read(keys);

    errno = saved;
    return count;
}

void gs_evidence_collect(void)
{
    uint64_t at = atomic_load_explicit(&self.collect_at, memory_order_relaxed);
    const uint64_t now = gs_now();
    struct gs_evidence keys[GS_LAUNCHER_MOST];
    unsigned count;

    if (now < at ||
        !atomic_compare_exchange_strong_explicit(&self.collect_at, &at, now + COLLECT_NS,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    if (is_chosen())
        return;
    count = read_launcher(keys);
    for (unsigned i = 0; i < count; i++)
        add_key(keys[i].kind, keys[i].key, keys[i].ranks);
}

void gs_evidence_share(uint64_t token)
{
    if (is_chosen())
        return;
    add_key(GS_KIN_MEMORY, gs_evidence_hash(0, &token, sizeof token), 0);
    gs_worker_wake();
}

/* --- the process's mappings --- */

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* One line of /proc/self/maps: address, rights, offset, device, inode, path. Memory that is
 * shared, can be written, and is no file: it may be a way to wait for another process. */
static void take_mapping(const char *line)
{
    const char *rights = strchr(line, ' ');
    const char *offset = rights != NULL ? strchr(rights + 1, ' ') : NULL;
    const char *device = offset != NULL ? strchr(offset + 1, ' ') : NULL;
    const char *path = strchr(line, '/');
    unsigned long long file[3]; /* inode, major and minor number of the device */
    char *end;
    uint64_t key;

    if (path == NULL || device == NULL || rights[2] != 'w' || rights[4] != 's')
        return;
    file[1] = strtoull(device, &end, 16);
    file[2] = *end == ':' ? strtoull(end + 1, &end, 16) : 0;
    file[0] = strtoull(end, &end, 10);
    if (file[0] == 0)
        return;
    key = gs_evidence_hash(0, file, sizeof file);
    if (begins(path, "/dev/shm/nccl-"))
        add_key(GS_KIN_NCCL, key, 0);
    else if (begins(path, "/dev/shm/") || begins(path, "/SYSV") || begins(path, "/dev/zero"))
        add_key(GS_KIN_SHARED, key, 0);
}

static void read_mappings(void)
{
    char text[4096 + 1];
    size_t kept = 0, left = MAPS_MOST;
    ssize_t got;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return;
    while (left != 0 && (got = read(fd, text + kept, sizeof text - 1 - kept)) > 0) {
        char *line = text, *end;

        text[kept + (size_t)got] = '\0';
        left -= (size_t)got < left ? (size_t)got : left;
        while ((end = strchr(line, '\n')) != NULL) {
            *end = '\0';
            take_mapping(line);
            line = end + 1;
        }
        kept = strlen(line);
        if (kept == sizeof text - 1)
            kept = 0; /* a line longer than any path that is looked for */
        memmove(text, line, kept);
    }
    close(fd);
}

void gs_evidence_look(bool waiting, bool beside, uint64_t now)
{
    if (beside && self.beside_since == 0)
        self.beside_since = now;
    beside = beside && now - self.beside_since < YOUNG_NS;
    if ((!waiting && !beside) || now < self.look_at)
        return;
    if (waiting && self.waits_since == 0)
        self.waits_since = now;
    self.look_at =
        now +
        (self.waits_since == 0 || now - self.waits_since < YOUNG_NS ? LOOK_NS : LOOK_LATER);
    if (!is_chosen())
        read_mappings();
}

/* --- to the daemon --- */

static int send_key(int fd, const struct gs_evidence *key)
{
    const struct gs_wire_kin message = {.header = {.magic = GS_WIRE_MAGIC,
                                                   .version = GS_WIRE_VERSION,
                                                   .type = GS_WIRE_KIN,
                                                   .length = sizeof message},
                                        .key = key->key,
                                        .kind = key->kind,
                                        .ranks = key->ranks};

    gs_log("evidence of kind %u", key->kind);
    return gs_connect_send(fd, &message, sizeof message, NULL);
}

int gs_evidence_send(int fd)
{
    while (fd >= 0 && self.sent < atomic_load_explicit(&self.added, memory_order_acquire)) {
        const int error = send_key(fd, &self.keys[self.sent]); /* never changed once added */

        if (error != 0)
            return error;
        self.sent++;
    }
    return 0;
}

void gs_evidence_lost(void)
{
    self.sent = 0;
}

void gs_evidence_after_fork(void)
{
    memset(&self, 0, sizeof self);
    pthread_mutex_init(&self.lock, NULL);
}

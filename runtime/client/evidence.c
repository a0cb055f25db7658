/* SPDX-License-Identifier: Apache-2.0
 *
 * evidence.c: owns the keys that this process has found. Threads of the program add some, the
 * client thread adds the others and sends them all. Keys stay, since programs that were one job
 * stay one job. The exception is open memory of another process: a program that has closed all of
 * it may move, or wait, by itself again. Only the client thread removes keys. The lock is held
 * for a few comparisons only.
 */
#include "runtime/client/evidence.h"

#include <fcntl.h>

#include "runtime/client/connect.h"
#include "runtime/client/launcher.h"
#include "runtime/memory/openings.h"

#define COLLECT_NS 1000000000ull
#define LOOK_NS    1000000000ull  /* while it is young: communicators are made then */
#define FIRST_NS   50000000ull    /* from the first report to the next look, while it waits */
#define EXPECT_NS  50000000ull    /* from look to look: programs may register often */
#define LOOK_LATER 15000000000ull /* after the program has waited for YOUNG_NS */
#define YOUNG_NS   60000000000ull
#define HINTS_MOST 8                          /* pieces of host memory */
#define MAPS_MOST  ((size_t)16 * 1024 * 1024) /* bytes of the list of mappings that are read */
/* The key stays for so long after the last memory was closed: programs that pass memory on piece
 * by piece have none open in between. */
#define CLOSED_NS 5000000000ull
/* Threads of the program wait until the daemon has been told: all of them together at most so
 * long, in pauses that grow. */
#define TOLD_NS       10000000000ull
#define PAUSE_NS      50000ull
#define PAUSE_MOST_NS 2000000ull

struct found {
    struct gs_evidence key;
    bool said;            /* sent on this connection */
    uint8_t exporter[16]; /* of GS_KIN_MEMORY */
    uint64_t used_at;     /* the last time that its memory was open, as far as is known */
};

static struct found all_found[GS_KIN_MOST];
static struct {
    pthread_mutex_t lock;
    unsigned count, hints, memory,
        connections;      /* connections: keys of them, also of ended connections */
    _Atomic(bool) unsaid; /* some key is; read without the lock. Release, acquire */
    _Atomic(uint64_t) collect_at;
    _Atomic(bool) chosen;  /* by the user, when a device was last attached. Relaxed */
    _Atomic(bool) expects; /* a look, soon. Release, acquire: with `wanted` */
    _Atomic(bool) exports; /* memory for other processes. Relaxed */
    _Atomic(uint32_t) wanted,
        told;                 /* looks that threads wait for, and those whose keys are sent */
    uint32_t added;           /* keys so far; under the lock */
    _Atomic(uint32_t) sent;   /* ... that this daemon has been told. Release, acquire */
    _Atomic(uint64_t) waited; /* ns, by threads of the program. Relaxed */
    uint32_t looks;           /* client thread: `wanted` when it last looked */
    uint64_t looked_at, look_at, waits_since, beside_since; /* client thread */
} self GS_ZERO_IN_CHILD;

/* True if the user has chosen the group, or wants none. In a thread of the program's. */
static bool read_chosen(void)
{
    const char *group = secure_getenv("GPUSHARE_GROUP");
    const bool chosen = group != NULL && *group != '\0';

    atomic_store_explicit(&self.chosen, chosen, memory_order_relaxed);
    return chosen;
}

static bool is_chosen(void)
{
    return atomic_load_explicit(&self.chosen, memory_order_relaxed);
}

/* Under the lock. NULL: the key is not known, and there are too many to add it. */
static struct found *find_or_add(uint32_t kind, uint64_t key, uint32_t ranks)
{
    const bool hint = kind >= GS_KIN_HINT_FIRST;

    for (unsigned i = 0; i < self.count; i++)
        if (all_found[i].key.key == key && all_found[i].key.kind == kind)
            return &all_found[i];
    if (self.count == GS_KIN_MOST || (hint && self.hints == HINTS_MOST))
        return NULL;
    self.hints += hint;
    self.memory += kind == GS_KIN_MEMORY;
    all_found[self.count] = (struct found){.key = {.key = key, .kind = kind, .ranks = ranks}};
    self.added++;
    atomic_store_explicit(&self.unsaid, true, memory_order_release);
    return &all_found[self.count++];
}

static void add_key(uint32_t kind, uint64_t key, uint32_t ranks)
{
    GS_WITH(&self.lock, GS_LOCK_EVIDENCE, find_or_add(kind, key, ranks));
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
    if (read_chosen())
        return;
    if (at == 0) /* the first look comes before the first report of a device */
        atomic_store_explicit(&self.expects, true, memory_order_release);
    GS_UNCANCELLED cancel = gs_cancel_off(); /* it reads files of /proc */
    count = gs_launcher_read(keys);
    for (unsigned i = 0; i < count; i++)
        add_key(keys[i].kind, keys[i].key, keys[i].ranks);
}

void gs_evidence_share(const uint8_t exporter[16])
{
    struct found *found;

    if (is_chosen())
        return;
    gs_lock(&self.lock, GS_LOCK_EVIDENCE);
    found =
        find_or_add(GS_KIN_MEMORY, gs_evidence_hash(0, exporter, sizeof found->exporter), 0);
    if (found != NULL) {
        memcpy(found->exporter, exporter, sizeof found->exporter);
        found->used_at = gs_now();
    }
    gs_unlock(&self.lock, GS_LOCK_EVIDENCE);
    gs_worker_wake();
}

/* --- the process's mappings --- */

static bool begins_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

struct mapping {
    unsigned long long first, end;
    uint64_t key;
    uint32_t kind; /* GS_KIN_NONE: no evidence */
};

/* Reads one line of /proc/self/maps: address, rights, offset, device, inode, path. A writable
 * shared mapping that is no file may be a way to wait for another process. */
static struct mapping parse_mapping(char *line)
{
    const char *rights = strchr(line, ' ');
    const char *offset = rights != NULL ? strchr(rights + 1, ' ') : NULL;
    const char *device = offset != NULL ? strchr(offset + 1, ' ') : NULL;
    const char *path = strchr(line, '/');
    unsigned long long file[3]; /* inode, major and minor number of the device */
    struct mapping mapping = {.kind = GS_KIN_NONE};
    char *end;

    if (path == NULL || device == NULL || rights[2] != 'w' || rights[4] != 's')
        return mapping;
    mapping.first = strtoull(line, &end, 16);
    mapping.end = *end == '-' ? strtoull(end + 1, NULL, 16) : 0;
    file[1] = strtoull(device, &end, 16);
    file[2] = *end == ':' ? strtoull(end + 1, &end, 16) : 0;
    file[0] = strtoull(end, &end, 10);
    if (file[0] == 0)
        return mapping;
    mapping.key = gs_evidence_hash(0, file, sizeof file);
    if (begins_with(path, "/dev/shm/nccl-"))
        mapping.kind = GS_KIN_NCCL;
    else if (begins_with(path, "/dev/shm/") || begins_with(path, "/SYSV") ||
             begins_with(path, "/dev/zero"))
        mapping.kind = GS_KIN_SHARED;
    return mapping;
}

static void take_mapping(char *line, void *context)
{
    const struct mapping mapping = parse_mapping(line);

    (void)context;
    if (mapping.kind != GS_KIN_NONE)
        add_key(mapping.kind, mapping.key, 0);
}

/* A program may talk to any other; ranks of NCCL have exported memory, too, at both ends. */
static void read_connections(void)
{
    uint64_t keys[GS_PEERS_MOST];
    const unsigned count = gs_peers_read(keys);

    GS_HOLD(&self.lock, GS_LOCK_EVIDENCE);
    for (unsigned i = 0; i < count && self.connections < GS_PEERS_MOST; i++) {
        const unsigned before = self.count;

        find_or_add(GS_KIN_NCCL, keys[i], 0);
        self.connections += self.count - before;
    }
}

/* Until the daemon has been told: a kernel that waits for another rank must not run before the
 * ranks are known as one job. */
static void wait_told(_Atomic(uint32_t) *what, uint32_t wanted)
{
    const uint64_t began = gs_now(),
                   waited = atomic_load_explicit(&self.waited, memory_order_relaxed);
    uint64_t pause = PAUSE_NS, now = began;

    while (atomic_load_explicit(what, memory_order_acquire) < wanted &&
           !gs_daemon_is_absent() && waited + now - began < TOLD_NS) {
        gs_pause(pause);
        pause = pause < PAUSE_MOST_NS / 2 ? 2 * pause : PAUSE_MOST_NS;
        now = gs_now();
    }
    atomic_fetch_add_explicit(&self.waited, now - began, memory_order_relaxed);
}

/* The process's mappings have changed in a way that may show peers, so they are looked at soon. */
static void expect_look(void)
{
    if (is_chosen() ||
        /* a look is expected already */
        atomic_exchange_explicit(&self.expects, true, memory_order_release))
        return;
    gs_worker_wake();
}

void gs_evidence_exported(void)
{
    uint32_t wanted;

    if (is_chosen() || atomic_exchange_explicit(&self.exports, true, memory_order_relaxed)) {
        expect_look();
        return;
    }
    wanted = atomic_fetch_add_explicit(&self.wanted, 1, memory_order_relaxed) + 1;
    expect_look();
    wait_told(&self.told, wanted);
}

/* --- registered memory --- */

struct place {
    unsigned long long address;
    struct mapping mapping; /* where it is */
};

static void find_mapping(char *line, void *context)
{
    struct place *place = context;
    const struct mapping mapping = parse_mapping(line);

    if (mapping.first <= place->address && place->address < mapping.end)
        place->mapping = mapping;
}

/* True if the page is there and no file's, nor shared with another process: proc_pid_pagemap(5). */
static bool is_private(unsigned long long address)
{
    const unsigned long long there = 1ull << 63, file_or_shared = 1ull << 61;
    uint64_t page = 0;
    GS_CLOSE_FD int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    const off_t at = (off_t)(address / (unsigned long long)sysconf(_SC_PAGESIZE) * sizeof page);

    if (fd < 0 || pread(fd, &page, sizeof page, at) != (ssize_t)sizeof page)
        return false;
    return (page & there) != 0 && (page & file_or_shared) == 0;
}

/* Adds the key of NCCL's memory. Returns the number of keys of which the daemon has to be told; 0:
 * it is none. */
static uint32_t add_registered(const struct mapping *mapping)
{
    uint32_t added = 0;

    if (mapping->kind != GS_KIN_NCCL)
        return 0;
    GS_HOLD(&self.lock, GS_LOCK_EVIDENCE);
    if (find_or_add(mapping->kind, mapping->key, 0) != NULL)
        added = self.added;
    return added;
}

void gs_evidence_registered(const void *address)
{
    struct place place = {.address = (unsigned long long)(uintptr_t)address};
    GS_UNCANCELLED cancel = gs_cancel_off();
    GS_KEEP_ERRNO;
    uint32_t wanted;

    if (!is_chosen() && !is_private(place.address)) {
        gs_lines_read("/proc/self/maps", MAPS_MOST, find_mapping, &place);
        wanted = add_registered(&place.mapping);
        expect_look();
        if (wanted != 0) {
            gs_worker_wake();
            wait_told(&self.sent, wanted);
        }
    }
}

/* When the next look is due: while the program waits, and in its first minute beside others.
 * UINT64_MAX: not now, or never if the user has chosen the group. */
static uint64_t plan_look(bool waiting, bool beside, uint64_t now)
{
    if (is_chosen())
        return UINT64_MAX;
    if (beside && self.beside_since == 0)
        self.beside_since = now;
    if (waiting && self.waits_since == 0)
        self.waits_since = now;
    if (!waiting && (!beside || now - self.beside_since >= YOUNG_NS))
        return UINT64_MAX;
    if (self.look_at == 0)
        self.look_at = now + FIRST_NS;
    return self.look_at;
}

uint64_t gs_evidence_look(bool waiting, bool beside, uint64_t now)
{
    const uint64_t since = now - self.looked_at;
    const uint64_t at = plan_look(waiting, beside, now);
    const bool expects = atomic_load_explicit(&self.expects, memory_order_relaxed);

    if (expects && since < EXPECT_NS)
        return EXPECT_NS - since;
    if (now < at && !expects)
        return at == UINT64_MAX ? UINT64_MAX : at - now;
    /* before it looks; a later call of expect_look() asks for another look */
    atomic_exchange_explicit(&self.expects, false, memory_order_acq_rel);
    self.looked_at = now;
    self.looks = atomic_load_explicit(&self.wanted, memory_order_relaxed);
    if (now >= at)
        self.look_at =
            now +
            (self.waits_since == 0 || now - self.waits_since < YOUNG_NS ? LOOK_NS : LOOK_LATER);
    gs_lines_read("/proc/self/maps", MAPS_MOST, take_mapping, NULL);
    if (atomic_load_explicit(&self.exports, memory_order_relaxed))
        read_connections();
    return at != UINT64_MAX ? self.look_at - now : UINT64_MAX;
}

/* --- to the daemon --- */

static int send_key(int fd, const struct gs_evidence *key, bool over)
{
    struct gs_wire_kin message = {.key = key->key,
                                  .kind = (uint16_t)key->kind,
                                  .flags = over ? GS_KIN_OVER : 0,
                                  .ranks = key->ranks};

    gs_connect_header(&message.header, GS_WIRE_KIN, sizeof message);
    gs_log("evidence of kind %u%s", key->kind, over ? " is over" : "");
    return gs_connect_send(fd, &message, sizeof message, NULL);
}

/* Returns the first unsaid key and marks it as said. */
static bool take_unsaid(struct gs_evidence *key)
{
    bool any = false;

    GS_HOLD(&self.lock, GS_LOCK_EVIDENCE);
    for (unsigned i = 0; i < self.count && !any; i++) {
        any = !all_found[i].said;
        *key = all_found[i].key;
        all_found[i].said = true;
    }
    return any;
}

static void mark_unsaid(const struct gs_evidence *key)
{
    gs_lock(&self.lock, GS_LOCK_EVIDENCE);
    for (unsigned i = 0; i < self.count; i++)
        if (all_found[i].key.key == key->key && all_found[i].key.kind == key->kind)
            all_found[i].said = false;
    gs_unlock(&self.lock, GS_LOCK_EVIDENCE);
    atomic_store_explicit(&self.unsaid, true, memory_order_release);
}

static bool is_used(const struct found *found)
{
    uint8_t own[sizeof found->exporter];

    gs_exports_number(own);
    return gs_openings_of(found->exporter) ||
           (gs_shares_any() && memcmp(own, found->exporter, sizeof own) == 0);
}

/* True if the key has been out of use long enough, also for threads that open memory just now. */
static bool remove_if_closed(unsigned i, uint64_t now, bool used)
{
    GS_HOLD(&self.lock, GS_LOCK_EVIDENCE);
    bool removed;

    if (used && all_found[i].used_at < now)
        all_found[i].used_at = now;
    removed = all_found[i].said && now > all_found[i].used_at + CLOSED_NS;
    if (removed) {
        all_found[i] = all_found[--self.count];
        self.memory--;
    }
    return removed;
}

/* Ends one key at a time: the next round is soon. */
static int end_closed(int fd, uint64_t now)
{
    for (unsigned i = 0;; i++) {
        struct found found;
        bool there;

        gs_lock(&self.lock, GS_LOCK_EVIDENCE);
        there = i < self.count && self.memory != 0;
        if (there)
            found = all_found[i];
        gs_unlock(&self.lock, GS_LOCK_EVIDENCE);
        if (!there)
            return 0;
        if (found.key.kind == GS_KIN_MEMORY && remove_if_closed(i, now, is_used(&found))) {
            const int error = send_key(fd, &found.key, true);

            if (error != 0)
                gs_evidence_share(found.exporter); /* it will be sent, and ended, once more */
            return error;
        }
    }
}

int gs_evidence_send(int fd, uint64_t now)
{
    const uint32_t added = GS_WITH(&self.lock, GS_LOCK_EVIDENCE, self.added);
    struct gs_evidence key;

    if (fd < 0)
        return 0;
    if (atomic_exchange_explicit(&self.unsaid, false, memory_order_acquire))
        while (take_unsaid(&key)) {
            const int error = send_key(fd, &key, false);

            if (error != 0) {
                mark_unsaid(&key);
                return error;
            }
        }
    atomic_store_explicit(&self.told, self.looks, memory_order_release);
    atomic_store_explicit(&self.sent, added, memory_order_release);
    return end_closed(fd, now);
}

void gs_evidence_lost(void)
{
    gs_lock(&self.lock, GS_LOCK_EVIDENCE);
    for (unsigned i = 0; i < self.count; i++)
        all_found[i].said = false;
    gs_unlock(&self.lock, GS_LOCK_EVIDENCE);
    atomic_store_explicit(&self.sent, 0, memory_order_relaxed);
    atomic_store_explicit(&self.unsaid, true, memory_order_release);
}

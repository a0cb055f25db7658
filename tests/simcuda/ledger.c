/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger.c: owns the files that describe the simulated cards (see ledger.h).
 *
 * Invariants: sum of used over the clients, and of the shared memory (shared.c) <= memory. A
 * client's entry is written only by its own process (or by who checkpoints it, checkpoint.c),
 * and cleared by others only when that process is dead. card->lock is robust: every field is
 * valid at any moment, so a lock inherited from a dead process is simply made consistent. The
 * folder's file "lock" is held (flock) while a card is made or joined. Threads: any.
 *
 * A driver's lock is the kernel's, in which no process stops. A process that is stopped (SIGSTOP)
 * while it has card->lock is therefore let go on by the next process that waits, and stops itself
 * when it has released the lock.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "common/fd.h"
#include "tests/simcuda/ledger.h"

#define CARD_MAGIC   0x3144524143434d53u /* "SMCCARD1" */
#define CARD_VERSION 9u
#define MIB          (1024ull * 1024u)
#define LOOK_NS      50000000u /* until a look at who has the lock: it is held for microseconds */

uint64_t sim_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sim_sleep_until(uint64_t ns)
{
    const struct timespec until = {.tv_sec = (time_t)(ns / 1000000000u),
                                   .tv_nsec = (long)(ns % 1000000000u)};

    if (ns > sim_now_ns() + 60000) {
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
            ;
        return;
    }
    while (sim_now_ns() < ns) /* too short for the kernel's timer slack */
        ;
}

#define START_UNKNOWN UINT64_MAX

/* Start time and state of a process; 0 when it is gone or a zombie, START_UNKNOWN when that
 * cannot be told, as by a process that has no descriptor left. */
static uint64_t process_start_and_state(int32_t pid, char *said)
{
    char path[64], text[1024];
    GS_CLOSE_FD int fd = -1;
    char state = 'Z', start[32] = "";

    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : START_UNKNOWN;
    const ssize_t got = read(fd, text, sizeof text - 1);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    const char *after_name = strrchr(text, ')');
    if (!after_name ||
        sscanf(
            after_name + 1,
            " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %31s",
            &state, start) != 2)
        return 0;
    *said = state;
    return state == 'Z' || state == 'X' ? 0 : strtoull(start, NULL, 10);
}

static uint64_t process_start(int32_t pid)
{
    char state;

    return process_start_and_state(pid, &state);
}

static bool client_lives(const struct sim_client *client)
{
    const uint64_t start = client->pid ? process_start(client->pid) : 0;

    return start && (start == client->start || start == START_UNKNOWN);
}

static void lock_robustly(pthread_mutex_t *mutex)
{
    if (pthread_mutex_lock(mutex) == EOWNERDEAD)
        pthread_mutex_consistent(mutex);
}

/* If the process that has the lock is stopped, it goes on until it has released the lock. A robust
 * mutex of glibc names the thread that has it. */
static void let_holder_release(struct sim_card *card)
{
    const int32_t thread =
        __atomic_load_n(&card->lock.__data.__lock, __ATOMIC_ACQUIRE) & FUTEX_TID_MASK;
    char state = 'R';

    if (thread == 0 || process_start_and_state(thread, &state) == 0 || state != 'T')
        return;
    atomic_store(&card->stops, thread);
    kill(thread, SIGCONT);
}

static void card_lock(struct sim_card *card)
{
    struct timespec until;
    int rc;

    do {
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        rc = pthread_mutex_timedlock(&card->lock, &until);
        if (rc == ETIMEDOUT)
            let_holder_release(card);
    } while (rc == ETIMEDOUT);
    if (rc == EOWNERDEAD)
        pthread_mutex_consistent(&card->lock);
}

static void card_unlock(struct sim_card *card)
{
    int32_t thread = gettid();
    const bool stop = atomic_compare_exchange_strong(&card->stops, &thread, 0);

    pthread_mutex_unlock(&card->lock);
    if (stop)
        raise(SIGSTOP);
}

static void remove_client(struct sim_card *card, unsigned client)
{
    sim_shared_leave(card, client);
    memset(&card->client[client], 0, sizeof card->client[client]);
}

void sim_card_remove_dead(struct sim_card *card)
{
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        if (card->client[i].pid && !client_lives(&card->client[i]))
            remove_client(card, i);
    }
    sim_shared_sweep(card);
}

static uint64_t card_left(const struct sim_card *card)
{
    uint64_t used = sim_shared_used(card, NULL);

    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++)
        used += card->client[i].used;
    /* shared memory outlives its maker, and who is alone may make the card smaller */
    return used < card->properties.memory ? card->properties.memory - used : 0;
}

int sim_card_folder(char *buffer, unsigned size)
{
    const char *folder = getenv("SIMCUDA_CARD");
    const int length = folder && *folder ? snprintf(buffer, size, "%s", folder)
                                         : snprintf(buffer, size, "/tmp/simcuda-%u", getuid());

    return length < 0 || (unsigned)length >= size ? -ENAMETOOLONG : 0;
}

static int make_mutexes(struct sim_card *card)
{
    pthread_mutexattr_t attributes;
    int rc = pthread_mutexattr_init(&attributes);

    rc = rc ? rc : pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    rc = rc ? rc : pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    rc = rc ? rc : pthread_mutex_init(&card->lock, &attributes);
    rc = rc ? rc : pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT);
    rc = rc ? rc : pthread_mutex_init(&card->compute, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -rc;
}

void sim_card_uuid(unsigned index, uint8_t uuid[16])
{
    for (unsigned i = 0; i < 15; i++)
        uuid[i] = (uint8_t)(0x51 + 7 * i);
    uuid[15] = (uint8_t)index;
}

/* Fills a file of zeros. */
static int format_card(struct sim_card *card, unsigned index, struct gs_err *err)
{
    bool set = false;

    memset(card, 0, sizeof *card);
    card->properties = (struct sim_properties){.memory = 1024 * MIB,
                                               .context_memory = 4 * MIB,
                                               .timeslice = 1,
                                               .driver_version = 13000,
                                               .cards = 1};
    int rc = sim_properties_read(&card->properties, &set, err);
    if (rc)
        return rc;
    card->version = CARD_VERSION;
    card->index = index;
    sim_card_uuid(index, card->uuid);
    rc = make_mutexes(card);
    if (rc)
        return gs_err_errno(err, rc, "making the locks of simulated card %u", index);
    rc = sim_shared_remove_all(index);
    if (rc)
        return gs_err_errno(err, rc, "removing the memory of an earlier simulated card %u",
                            index);
    __atomic_store_n(&card->magic, CARD_MAGIC, __ATOMIC_RELEASE); /* last: the card is whole */
    return 0;
}

static int open_card(const char *folder, unsigned index, bool create, struct sim_card **card,
                     struct gs_err *err)
{
    char path[512];
    struct stat status;
    GS_CLOSE_FD int fd = -1;
    const int opened = sim_shared_open(folder);

    if (opened)
        return gs_err_errno(err, opened, "opening the folder %s of the simulated cards",
                            folder);
    snprintf(path, sizeof path, "%s/card%u", folder, index);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | (create ? O_CREAT : 0), 0600);
    if (fd < 0)
        return gs_err_errno(err, -errno, "opening the simulated card %s", path);
    if (fstat(fd, &status) || status.st_uid != geteuid())
        return gs_err_set(err, -EPERM, "%s belongs to another user: set SIMCUDA_CARD", path);
    if (status.st_size != sizeof **card &&
        (!create || ftruncate(fd, 0) || ftruncate(fd, sizeof **card)))
        return gs_err_set(err, -EINVAL,
                          "%s is no card of this version: run simcuda-card --reset", path);
    void *map = mmap(NULL, sizeof **card, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return gs_err_errno(err, -errno, "mapping %s", path);
    *card = map;
    if ((*card)->magic == CARD_MAGIC && (*card)->version == CARD_VERSION)
        return 0;
    const int rc =
        create ? format_card(*card, index, err)
               : gs_err_set(err, -EINVAL, "%s is no card: run simcuda-card --reset", path);
    if (rc)
        munmap(map, sizeof **card);
    return rc;
}

static int lock_folder(const char *folder, bool create, struct gs_err *err)
{
    char path[512];
    struct stat status;

    if (create && mkdir(folder, 0700) && errno != EEXIST)
        return gs_err_errno(err, -errno, "making %s for the simulated cards", folder);
    if (!create && access(folder, F_OK) != 0 && errno == ENOENT)
        return gs_err_set(err, -ENOENT, "there is no %s", folder);
    if (stat(folder, &status) || status.st_uid != geteuid() || (status.st_mode & 022))
        return gs_err_set(err, -EPERM, "%s must be yours alone: set SIMCUDA_CARD", folder);
    snprintf(path, sizeof path, "%s/lock", folder);
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return gs_err_errno(err, -errno, "opening %s", path);
    if (flock(fd, LOCK_EX) == 0)
        return fd;
    const int rc = gs_err_errno(err, -errno, "locking %s", path);
    close(fd);
    return rc;
}

static int enter_card(struct sim_card *card, unsigned *client, struct gs_err *err)
{
    unsigned live = 0, place = SIM_CLIENTS_MAX;
    bool set = false;
    int rc = 0;

    /* alone: a lock that was held when the machine went down would never be released */
    for (unsigned i = 0; i < SIM_CLIENTS_MAX; i++) {
        const struct sim_client other = card->client[i];
        live += client_lives(&other);
    }
    if (!live) {
        memset(card->bus_free_ns, 0, sizeof card->bus_free_ns);
        rc = make_mutexes(card);
        if (rc)
            return gs_err_errno(err, rc, "making the locks of simulated card %u", card->index);
    }
    card_lock(card);
    sim_card_remove_dead(card);
    for (unsigned i = SIM_CLIENTS_MAX; i-- > 0;) {
        place = card->client[i].pid ? place : i;
    }
    struct sim_properties properties = card->properties;
    if (!live && (rc = sim_properties_read(&properties, &set, err)) == 0 && set)
        card->properties = properties;
    if (rc == 0 && place == SIM_CLIENTS_MAX)
        rc = gs_err_set(err, -EUSERS, "more than %d processes use the simulated card",
                        SIM_CLIENTS_MAX);
    if (rc == 0) {
        struct sim_client *mine = &card->client[place];
        *mine = (struct sim_client){.pid = getpid(), .start = process_start(getpid())};
        snprintf(mine->name, sizeof mine->name, "%s", program_invocation_short_name);
        *client = place;
    }
    card_unlock(card);
    return rc;
}

int sim_card_join(unsigned index, struct sim_card **card, unsigned *client, struct gs_err *err)
{
    char folder[400];

    if (sim_card_folder(folder, sizeof folder))
        return gs_err_set(err, -ENAMETOOLONG, "SIMCUDA_CARD is too long");
    GS_CLOSE_FD int lock = lock_folder(folder, true, err);
    if (lock < 0)
        return lock;
    int rc = open_card(folder, index, true, card, err);
    if (rc)
        return rc;
    rc = enter_card(*card, client, err);
    if (rc)
        sim_card_unmap(*card);
    return rc;
}

int sim_card_hold(struct gs_err *err)
{
    char folder[400];

    if (sim_card_folder(folder, sizeof folder))
        return gs_err_set(err, -ENAMETOOLONG, "SIMCUDA_CARD is too long");
    return lock_folder(folder, false, err);
}

int sim_card_look(unsigned index, struct sim_card **card, struct gs_err *err)
{
    char folder[400];

    if (sim_card_folder(folder, sizeof folder))
        return gs_err_set(err, -ENAMETOOLONG, "SIMCUDA_CARD is too long");
    return open_card(folder, index, false, card, err);
}

void sim_card_unmap(struct sim_card *card)
{
    munmap(card, sizeof *card);
}

void sim_card_leave(struct sim_card *card, unsigned client)
{
    card_lock(card);
    remove_client(card, client);
    card_unlock(card);
}

bool sim_card_has_room(struct sim_card *card, uint64_t bytes)
{
    if (card_left(card) >= bytes)
        return true;
    sim_card_remove_dead(card);
    return card_left(card) >= bytes;
}

int sim_card_charge(struct sim_card *card, unsigned client, uint64_t bytes)
{
    struct sim_client *mine = &card->client[client];

    card_lock(card);
    const int rc = sim_card_has_room(card, bytes) ? 0 : -ENOMEM;
    if (!rc)
        mine->used += bytes;
    if (mine->used > mine->peak)
        mine->peak = mine->used;
    card_unlock(card);
    return rc;
}

void sim_card_refund(struct sim_card *card, unsigned client, uint64_t bytes)
{
    card_lock(card);
    struct sim_client *mine = &card->client[client];
    mine->used -= bytes < mine->used ? bytes : mine->used;
    card_unlock(card);
}

void sim_card_lock(struct sim_card *card)
{
    card_lock(card);
}

void sim_card_unlock(struct sim_card *card)
{
    card_unlock(card);
}

uint64_t sim_card_free(struct sim_card *card)
{
    card_lock(card);
    sim_card_remove_dead(card);
    const uint64_t bytes = card_left(card);
    card_unlock(card);
    return bytes;
}

uint64_t sim_card_book_bus(struct sim_card *card, enum sim_direction direction, uint64_t bytes)
{
    const uint64_t rate = card->properties.pcie_rate;

    if (!rate)
        return 0;
    const uint64_t now = sim_now_ns();
    const uint64_t cost = (uint64_t)((double)bytes * 1e9 / (double)rate);
    card_lock(card);
    uint64_t *bus = &card->bus_free_ns[direction];
    *bus = (*bus > now ? *bus : now) + cost;
    const uint64_t end = *bus;
    card_unlock(card);
    return end;
}

void sim_card_compute_begin(struct sim_card *card)
{
    if (card->properties.timeslice)
        lock_robustly(&card->compute);
}

void sim_card_compute_end(struct sim_card *card)
{
    if (card->properties.timeslice)
        pthread_mutex_unlock(&card->compute);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * handover.c: owns the descriptors of device memory in this process: in hand (received, and not
 * used yet), of chunks (in use), given (on their way to the daemon).
 *
 * Each has a place in one table. They are a small part of the descriptors that the process may
 * open. Only the client thread fills places; any thread whose chunk loses its memory empties one
 * (atomics). A program may close numbers that are not its own and use them again: a descriptor is
 * closed or sent only if it is still the same file (same_file).
 */
#include "runtime/range/handover.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "runtime/range/vmm.h"

#define PLACES    4096u
#define LOST      (-1)
#define LEAST     64    /* a process that may open fewer keeps them all for the program */
#define HAND_MOST 512u  /* pieces */
#define WORTH     16384 /* a descriptor is used for no less than this part of the device */

#define FORK_WAIT_NS  100000000u /* a driver that hangs in an export must not hang fork() */
#define FORK_PAUSE_NS 50000

struct place {
    _Atomic(int) fd; /* 0: free; LOST: another place has its number now */
    dev_t device, kind;
    ino_t inode;
};

struct piece {
    struct gs_device *device;
    uint64_t bytes;
    uint16_t place;
    bool network; /* network cards can reach it */
};

static struct place places[PLACES];
static _Atomic(unsigned) filled; /* relaxed: places from here on were never filled */
static struct {
    /* seq_cst, both: either the client thread sees that a thread forks, or that thread sees the
     * client thread busy with a descriptor that has no place yet */
    _Atomic(unsigned) forking;
    _Atomic(bool) busy;

    unsigned hand_count, given_count;
} self GS_ZERO_IN_CHILD;
static struct piece in_hand[HAND_MOST], given[GS_GIVEN_MOST];

/* --- places --- */

static bool same_file(const struct place *place, int fd)
{
    struct stat now;

    return fstat(fd, &now) == 0 && now.st_dev == place->device && now.st_ino == place->inode &&
           now.st_rdev == place->kind;
}

static void empty_place(unsigned i)
{
    GS_UNCANCELLED cancel = gs_cancel_off();
    struct place *place = &places[i];
    const int fd = atomic_load_explicit(&place->fd, memory_order_acquire), saved = errno;

    if (fd != 0 && same_file(place, fd))
        close(fd);
    errno = saved;
    atomic_store_explicit(&place->fd, 0, memory_order_release);
}

static unsigned most_places(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur <= LEAST)
        return 0;
    return limit.rlim_cur / GS_OWN_FD_SHARE < PLACES
               ? (unsigned)(limit.rlim_cur / GS_OWN_FD_SHARE)
               : PLACES;
}

/* On a card all descriptors of memory are of one file. If we get a number again, somebody else
 * has closed it: the place that had it has no descriptor any more. */
static void lose_number(int fd)
{
    for (unsigned i = 0; i < atomic_load_explicit(&filled, memory_order_relaxed); i++) {
        int had = fd;

        if (atomic_load_explicit(&places[i].fd, memory_order_relaxed) == fd)
            atomic_compare_exchange_strong_explicit(&places[i].fd, &had, LOST,
                                                    memory_order_acq_rel, memory_order_relaxed);
    }
}

/* Takes over the descriptor under a higher number. False: it is closed. */
static bool fill_place(int fd, uint16_t *index)
{
    const unsigned most = most_places();
    GS_UNCANCELLED cancel = gs_cancel_off();
    int kept = -1;
    unsigned i = 0;
    struct stat what;

    while (i < most && atomic_load_explicit(&places[i].fd, memory_order_acquire) != 0)
        i++;
    if (i < most)
        kept = gs_own_fd_higher(fd, gs_own_fd_floor(), &what);
    if (kept < 0) {
        close(fd);
        return false;
    }
    lose_number(kept);
    places[i].device = what.st_dev;
    places[i].inode = what.st_ino;
    places[i].kind = what.st_rdev;
    if (i >= atomic_load_explicit(&filled, memory_order_relaxed))
        atomic_store_explicit(&filled, i + 1, memory_order_relaxed);
    atomic_store_explicit(&places[i].fd, kept, memory_order_release);
    *index = (uint16_t)i;
    return true;
}

void gs_handover_forget(struct gs_chunk *chunk)
{
    if (chunk->descriptor != 0)
        empty_place(chunk->descriptor - 1u);
    chunk->descriptor = 0;
}

/* --- descriptors without a place --- */

bool gs_handover_begin(void)
{
    atomic_store_explicit(&self.busy, true, memory_order_seq_cst);
    if (atomic_load_explicit(&self.forking, memory_order_seq_cst) == 0)
        return true;
    atomic_store_explicit(&self.busy, false, memory_order_release);
    return false;
}

void gs_handover_end(void)
{
    atomic_store_explicit(&self.busy, false, memory_order_release);
}

void gs_handover_before_fork(void)
{
    atomic_fetch_add_explicit(&self.forking, 1, memory_order_seq_cst);
    for (unsigned i = 0; i < FORK_WAIT_NS / FORK_PAUSE_NS &&
                         atomic_load_explicit(&self.busy, memory_order_seq_cst);
         i++)
        gs_pause(FORK_PAUSE_NS);
}

void gs_handover_after_fork(void)
{
    atomic_fetch_sub_explicit(&self.forking, 1, memory_order_relaxed);
}

void gs_handover_in_child(void)
{
    for (unsigned i = 0; i < atomic_load_explicit(&filled, memory_order_relaxed); i++)
        empty_place(i);
}

/* --- what comes --- */

unsigned gs_handover_expect(unsigned least)
{
    const unsigned places_most = most_places(), hand = HAND_MOST - self.hand_count,
                   most = hand < GS_PACKET_FDS ? hand : GS_PACKET_FDS;
    unsigned found = 0;

    for (unsigned i = 0; i < places_most && found < most; i++)
        found += atomic_load_explicit(&places[i].fd, memory_order_relaxed) == 0;
    if (found < least)
        found = least;
    return gs_handover_begin() ? found : 0;
}

static void count_out(struct gs_device *device, uint64_t bytes)
{
    GS_WITH_MEMORY(device->accounts.resident -= bytes);
}

/* False: the budget has no room for them. */
static bool count_in(struct gs_device *device, uint64_t bytes, uint64_t budget)
{
    GS_HOLD_MEMORY;
    bool fits =
        device->accounts.resident <= budget && bytes <= budget - device->accounts.resident;

    if (fits)
        device->accounts.resident += bytes;
    return fits;
}

static void receive_pieces(struct gs_device *device, const struct gs_wire_target *target,
                           struct gs_descriptors *with)
{
    unsigned taken = 0;

    if (!gs_device_is_movable(device) || device->managed)
        return;
    for (; taken < with->count && taken < GS_GIVEN_MOST && target->handed_bytes[taken] != 0 &&
           self.hand_count < HAND_MOST &&
           count_in(device, target->handed_bytes[taken], target->budget);
         taken++) {
        struct piece *piece = &in_hand[self.hand_count];

        piece->device = device;
        piece->bytes = target->handed_bytes[taken];
        piece->network = target->handed_network >> taken & 1;
        if (fill_place(with->fd[taken], &piece->place))
            self.hand_count++;
        else
            count_out(device, piece->bytes);
    }
    with->count -= taken;
    memmove(with->fd, with->fd + taken, with->count * sizeof with->fd[0]);
}

void gs_handover_heard(struct gs_device *device, const struct gs_wire_target *target,
                       struct gs_descriptors *with)
{
    if ((target->flags & GS_TARGET_RUN) == 0) {
        gs_handover_shrink(device, 0);
        return;
    }
    gs_handover_sent(device);
    receive_pieces(device, target, with);
}

uint64_t gs_handover_in_hand(const struct gs_device *device)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < self.hand_count; i++)
        bytes += in_hand[i].device == device ? in_hand[i].bytes : 0;
    return bytes;
}

uint64_t gs_handover_bytes(const struct gs_device *device, unsigned i)
{
    for (unsigned k = 0; k < self.hand_count; k++)
        if (in_hand[k].device == device && i-- == 0)
            return in_hand[k].bytes;
    return 0;
}

/* Takes a piece out of the hand; its place is the caller's. The order of the others stays. */
static struct piece take_piece(unsigned i)
{
    const struct piece piece = in_hand[i];

    memmove(&in_hand[i], &in_hand[i + 1], (--self.hand_count - i) * sizeof in_hand[0]);
    count_out(piece.device, piece.bytes);
    return piece;
}

void gs_handover_shrink(struct gs_device *device, uint64_t most)
{
    for (unsigned i = self.hand_count; i > 0 && gs_handover_in_hand(device) > most; i--)
        if (in_hand[i - 1].device == device)
            empty_place(take_piece(i - 1).place);
}

bool gs_handover_serves(const struct gs_range *range, bool network)
{
    /* PyTorch's expandable segments ask for memory that network cards can reach */
    return network || range->own == NULL ||
           range->own->prop.allocFlags.gpuDirectRDMACapable == 0;
}

static bool place_piece(const struct piece *piece, struct gs_range *range, uint32_t chunk)
{
    CUmemGenericAllocationHandle *handle = &range->chunks[chunk].handle;
    const int fd = atomic_load_explicit(&places[piece->place].fd, memory_order_acquire);
    CUresult result = CUDA_ERROR_INVALID_VALUE;

    if (same_file(&places[piece->place], fd))
        result = gs_driver.cuMemImportFromShareableHandle(
            handle, (void *)(uintptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result == CUDA_SUCCESS) {
        result = gs_vmm_map(range, chunk);
        if (result == CUDA_SUCCESS)
            return true;
        gs_vmm_release(*handle);
    }
    gs_log("memory from another program: CUresult %d", result);
    return false;
}

/* Memory that the program made by cuMemCreate has been asked for with nothing special, and can be
 * made and exported like cuMemAlloc's. (The program sees the properties that it asked for.) */
static bool is_plain(const CUmemAllocationProp *prop)
{
    CUmemAllocationProp plain = {.allocFlags.gpuDirectRDMACapable =
                                     prop->allocFlags.gpuDirectRDMACapable};

    return prop->requestedHandleTypes <= CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR &&
           prop->win32HandleMetaData == NULL &&
           memcmp(&prop->allocFlags, &plain.allocFlags, sizeof plain.allocFlags) == 0;
}

bool gs_handover_suits(const struct gs_range *range)
{
    return range->theirs == NULL && !range->device->managed &&
           (range->own == NULL || is_plain(&range->own->prop));
}

bool gs_handover_place(struct gs_range *range, uint32_t chunk)
{
    const uint64_t bytes = gs_range_chunk_bytes(range, chunk);

    for (unsigned i = 0; i < self.hand_count && gs_handover_suits(range);) {
        struct piece piece;

        if (in_hand[i].device != range->device || in_hand[i].bytes != bytes ||
            !gs_handover_serves(range, in_hand[i].network)) {
            i++;
            continue;
        }
        piece = take_piece(i);
        if (place_piece(&piece, range, chunk)) {
            range->chunks[chunk].descriptor = (uint16_t)(piece.place + 1u);
            range->chunks[chunk].network = piece.network;
            atomic_fetch_add_explicit(&gs_counts.taken_over, bytes, memory_order_relaxed);
            return true;
        }
        empty_place(piece.place);
    }
    return false;
}

/* --- what goes --- */

bool gs_handover_is_wanted(const struct gs_range *range, uint32_t chunk)
{
    return (gs_device_flags(range->device) & GS_TARGET_GIVE) != 0 && gs_handover_suits(range) &&
           gs_range_chunk_bytes(range, chunk) >= range->device->physical / WORTH;
}

static bool export_chunk(const struct gs_chunk *chunk, uint16_t *place)
{
    int fd = -1;
    bool done;

    if (!chunk->sendable || !gs_handover_begin())
        return false;
    done = gs_driver.cuMemExportToShareableHandle(&fd, chunk->handle,
                                                  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                  0) == CUDA_SUCCESS &&
           fill_place(fd, place);
    gs_handover_end();
    return done;
}

int gs_handover_lend(const struct gs_chunk *chunk, bool *made)
{
    int fd = -1;

    *made = chunk->descriptor == 0;
    if (*made)
        return chunk->sendable &&
                       gs_driver.cuMemExportToShareableHandle(
                           &fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
                           CUDA_SUCCESS
                   ? fd
                   : -1;
    fd = atomic_load_explicit(&places[chunk->descriptor - 1u].fd, memory_order_acquire);
    return same_file(&places[chunk->descriptor - 1u], fd) ? fd : -1;
}

/* Gets a descriptor for the chunk's memory: the descriptor with which it came, or a new
 * descriptor. */
static bool descriptor_for(const struct gs_chunk *chunk, uint16_t *place)
{
    if (chunk->descriptor == 0)
        return export_chunk(chunk, place);
    *place = (uint16_t)(chunk->descriptor - 1u);
    return same_file(&places[*place],
                     atomic_load_explicit(&places[*place].fd, memory_order_acquire));
}

bool gs_handover_give(struct gs_range *range, uint32_t chunk)
{
    struct gs_chunk *const which = &range->chunks[chunk];
    struct piece piece = {range->device, gs_range_chunk_bytes(range, chunk), 0, which->network};
    CUresult unmapped, released;

    /* with RUN on, other memory may come in before the daemon knows that this has left */
    if (!gs_handover_is_wanted(range, chunk) ||
        (gs_device_flags(range->device) & GS_TARGET_RUN) != 0 ||
        self.given_count == GS_GIVEN_MOST || !descriptor_for(which, &piece.place))
        return false;
    unmapped = gs_vmm_unmap(range, chunk);
    released = gs_vmm_release(which->handle);
    which->descriptor = 0;
    if (unmapped != CUDA_SUCCESS || released != CUDA_SUCCESS) {
        /* memory that is still mapped here must not reach another program */
        gs_log("memory at %#llx cannot be handed over: CUresult %d, %d",
               (unsigned long long)gs_range_chunk_address(range, chunk), unmapped, released);
        empty_place(piece.place);
        return true;
    }
    given[self.given_count++] = piece;
    atomic_fetch_add_explicit(&gs_counts.given, piece.bytes, memory_order_relaxed);
    return true;
}

void gs_handover_report(const struct gs_device *device, struct gs_wire_state *state,
                        struct gs_descriptors *with)
{
    with->count = 0;
    for (unsigned i = 0; i < self.given_count; i++) {
        const struct place *place = &places[given[i].place];
        const int fd = atomic_load_explicit(&place->fd, memory_order_acquire);

        if (given[i].device != device || !same_file(place, fd))
            continue;
        state->given_bytes[with->count] = given[i].bytes;
        state->given_network |= (uint32_t)given[i].network << with->count;
        with->fd[with->count++] = fd;
    }
    state->given = with->count;
}

void gs_handover_sent(const struct gs_device *device)
{
    unsigned left = 0;

    for (unsigned i = 0; i < self.given_count; i++)
        if (given[i].device == device)
            empty_place(given[i].place);
        else
            given[left++] = given[i];
    self.given_count = left;
}

bool gs_handover_has_any(void)
{
    return self.given_count != 0 || self.hand_count != 0;
}

void gs_handover_lost(void)
{
    while (self.given_count != 0)
        empty_place(given[--self.given_count].place);
    while (self.hand_count != 0)
        empty_place(take_piece(self.hand_count - 1).place);
}

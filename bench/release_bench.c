/* SPDX-License-Identifier: Apache-2.0
 *
 * release_bench.c: where a hand-off's time goes that its copies do not take. Two processes copy
 * at the same time, one out of its device memory, the other into its own, chunk by chunk, the
 * second never ahead of the first: as in a hand-off, but without gpushare. Each way of treating
 * the memory is measured against the copies alone, in the same run:
 *
 *   copies alone         nothing is unmapped, released or made
 *   unmapped             what has left is unmapped
 *   released             ... and released
 *   released and made    ... and what comes in gets newly made memory (what gpushare does)
 *   handed over          the memory itself goes to the other process, as a file descriptor:
 *                        nothing is released or made
 *
 *   release_bench [--gib N] [--rounds N] [--json FILE]
 *
 * The driver clears released memory with the copy engine that also brings memory in; that is
 * the difference between "unmapped" and "released".
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/card.h"
#include "bench/median.h"

#define CHUNK      (128ull << 20)
#define HOST_BYTES (1ull << 30) /* of each process, at most; used again and again */
#define DEPTH      3            /* copies queued at a time */
#define LOOK_NS    20000u
#define BUS_MOST   (4ull << 30)
#define MOST       512 /* chunks */
#define ROUNDS     32
#define WAIT_S     60

enum { NOTHING, UNMAP, RELEASE, SEND }; /* what has left */
enum { READY, MAKE, IMPORT };           /* what comes in */
static const struct way {
    const char *name;
    int leaving, coming;
} ways[] = {{"copies alone", NOTHING, READY},
            {"unmapped", UNMAP, READY},
            {"released", RELEASE, READY},
            {"released and made", RELEASE, MAKE},
            {"handed over", SEND, IMPORT}};
#define WAYS (sizeof ways / sizeof ways[0])

struct board {
    _Atomic(unsigned) ready, go, gone, finished; /* gone: chunks that have left */
    uint64_t from[2], to[2];                     /* ns: of each process */
    char card[64];
    int32_t driver;
    struct bus bus;
};

struct worker {
    CUdeviceptr memory;
    CUmemGenericAllocationHandle handles[MOST];
    CUevent copied[MOST];
    CUstream stream;
    char *host;
    uint64_t host_bytes;
    unsigned chunks;
    int channel; /* to the other process */
};

static struct board *board;
static struct worker self;

/* --- memory --- */

static CUmemAllocationProp make_properties(bool sendable)
{
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                 .requestedHandleTypes =
                                     sendable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                              : CU_MEM_HANDLE_TYPE_NONE};
}

static void map_chunk(unsigned i)
{
    const CUmemAccessDesc access = {.location = make_properties(false).location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

    check(cuMemMap(self.memory + i * CHUNK, CHUNK, 0, self.handles[i], 0), "cuMemMap");
    check(cuMemSetAccess(self.memory + i * CHUNK, CHUNK, &access, 1), "cuMemSetAccess");
}

static void make_chunk(unsigned i, bool sendable)
{
    const CUmemAllocationProp wanted = make_properties(sendable);

    check(cuMemCreate(&self.handles[i], CHUNK, &wanted, 0), "cuMemCreate");
    map_chunk(i);
}

static void send_handle(unsigned i)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    char byte = 0;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    int fd;

    check(cuMemExportToShareableHandle(&fd, self.handles[i],
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
          "cuMemExportToShareableHandle");
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fd);
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    if (sendmsg(self.channel, &message, 0) < 0) {
        perror("sending a handle");
        exit(1);
    }
    close(fd);
}

static void receive_handle(unsigned i)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    char byte;
    struct iovec part = {&byte, 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof control.bytes};
    const struct cmsghdr *header;
    int fd;

    if (recvmsg(self.channel, &message, MSG_CMSG_CLOEXEC) <= 0 ||
        (header = CMSG_FIRSTHDR(&message)) == NULL) {
        fprintf(stderr, "release_bench: the other process is gone\n");
        exit(1);
    }
    memcpy(&fd, CMSG_DATA(header), sizeof fd);
    check(cuMemImportFromShareableHandle(&self.handles[i], (void *)(intptr_t)fd,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
          "cuMemImportFromShareableHandle");
    close(fd);
    map_chunk(i);
}

static void leave_chunk(unsigned i, int leaving)
{
    if (leaving == SEND)
        send_handle(i);
    if (leaving != NOTHING)
        check(cuMemUnmap(self.memory + i * CHUNK, CHUNK), "cuMemUnmap");
    if (leaving == RELEASE || leaving == SEND)
        check(cuMemRelease(self.handles[i]), "cuMemRelease");
}

static void bring_chunk(unsigned i, int coming)
{
    if (coming == MAKE)
        make_chunk(i, false);
    else if (coming == IMPORT)
        receive_handle(i);
}

/* --- the two processes --- */

static void prepare_chunks(bool mapped, bool sendable)
{
    open_device(CU_CTX_SCHED_AUTO);
    check(cuMemAddressReserve(&self.memory, self.chunks * CHUNK, 0, 0, 0),
          "cuMemAddressReserve");
    for (unsigned i = 0; i < self.chunks && mapped; i++)
        make_chunk(i, sendable);
    if (mapped)
        check(cuMemsetD8(self.memory, 1, self.chunks * CHUNK), "cuMemsetD8");
    self.host_bytes = self.chunks * CHUNK < HOST_BYTES ? self.chunks * CHUNK : HOST_BYTES;
    self.host =
        mmap(NULL, self.host_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (self.host == MAP_FAILED) {
        perror("release_bench: host memory");
        exit(1);
    }
    madvise(self.host, self.host_bytes, MADV_HUGEPAGE);
    memset(self.host, 1, self.host_bytes);
    check(cuMemHostRegister(self.host, self.host_bytes, CU_MEMHOSTREGISTER_PORTABLE),
          "cuMemHostRegister");
    check(cuStreamCreate(&self.stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    for (unsigned i = 0; i < self.chunks; i++)
        check(cuEventCreate(&self.copied[i], CU_EVENT_DISABLE_TIMING), "cuEventCreate");
    check(cuCtxSynchronize(), "cuCtxSynchronize");
}

static void queue_copy(unsigned i, bool in)
{
    const CUdeviceptr address = self.memory + i * CHUNK;
    char *const host = self.host + i * CHUNK % self.host_bytes;

    check(in ? cuMemcpyHtoDAsync(address, host, CHUNK, self.stream)
             : cuMemcpyDtoHAsync(host, address, CHUNK, self.stream),
          in ? "copy in" : "copy out");
    check(cuEventRecord(self.copied[i], self.stream), "cuEventRecord");
}

/* The card is asked for no more than one of them needs: the second is not ahead of the first.
 */
static void run_worker(unsigned number, const struct way *way)
{
    const bool in = number == 1;
    unsigned queued = 0;

    prepare_chunks(!in || way->coming == READY, !in && way->leaving == SEND);
    atomic_fetch_add(&board->ready, 1);
    while (!atomic_load(&board->go))
        rest_ns(LOOK_NS);
    board->from[number] = now_ns();
    for (unsigned done = 0; done < self.chunks; done++) {
        for (; queued < self.chunks && queued < done + DEPTH; queued++) {
            if (in && queued > done && atomic_load(&board->gone) <= queued)
                break;
            while (in && atomic_load(&board->gone) <= queued)
                rest_ns(LOOK_NS);
            if (in)
                bring_chunk(queued, way->coming);
            queue_copy(queued, in);
        }
        check(cuEventSynchronize(self.copied[done]), "cuEventSynchronize");
        if (in)
            continue;
        leave_chunk(done, way->leaving);
        atomic_fetch_add(&board->gone, 1);
    }
    board->to[number] = now_ns();
    atomic_fetch_add(&board->finished, 1);
    while (atomic_load(&board->finished) < 2) /* the end of a process clears memory, too */
        rest_ns(1000000);
}

static void describe_run(uint64_t bytes)
{
    const CUdevice device = open_device(CU_CTX_SCHED_AUTO);
    int driver;

    check(cuDeviceGetName(board->card, sizeof board->card, device), "cuDeviceGetName");
    check(cuDriverGetVersion(&driver), "cuDriverGetVersion");
    board->driver = driver;
    board->bus = measure_bus(bytes < BUS_MOST ? bytes : BUS_MOST);
}

/* --- the parent --- */

static void fail_run(void)
{
    fprintf(stderr, "release_bench: a process failed or hangs (see above)\n");
    exit(
        1); /* its children have this group's SIGKILL from the terminal, or end by themselves */
}

static void await_processes(unsigned processes)
{
    for (unsigned i = 0; i < processes; i++) {
        int status;

        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_run();
    }
}

/* Seconds from the first copy's beginning to the last one's end. */
static double measure_way(const struct way *way, unsigned chunks)
{
    const uint64_t until = now_ns() + WAIT_S * NS_PER_S;
    int channels[2];

    board->ready = board->go = board->gone = board->finished = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, channels) != 0)
        fail_run();
    for (unsigned i = 0; i < 2; i++)
        if (fork() == 0) {
            alarm(2 * WAIT_S);
            self.chunks = chunks;
            self.channel = channels[i];
            close(channels[1 - i]);
            run_worker(i, way);
            _exit(0);
        }
    close(channels[0]);
    close(channels[1]);
    while (atomic_load(&board->ready) < 2) {
        if (now_ns() > until || waitpid(-1, NULL, WNOHANG) != 0)
            fail_run();
        rest_ns(1000000);
    }
    atomic_store(&board->go, 1);
    await_processes(2);
    return (double)((board->to[0] > board->to[1] ? board->to[0] : board->to[1]) -
                    board->from[0]) /
           1e9;
}

static int write_json(const char *path, const double (*seconds)[ROUNDS], unsigned rounds,
                      double bytes)
{
    FILE *file = fopen(path, "w");
    const time_t now = time(NULL);
    char date[16];

    if (file == NULL) {
        perror(path);
        return -1;
    }
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    fprintf(file,
            "{\"benchmark\": \"release\", \"date\": \"%s\", \"card\": \"%s\", \"driver\": %d, "
            "\"bytes_each_way\": %.0f, \"rounds\": %u, \"duplex_one_process\": %.2f,\n "
            "\"rows\": [",
            date, board->card, board->driver, bytes, rounds, board->bus.duplex / 1e9);
    for (unsigned i = 0; i < WAYS; i++) {
        fprintf(file,
                "%s\n  {\"name\": \"%s\", \"value\": %.2f, \"unit\": \"GB/s\", \"ceiling\": "
                "%.2f, \"against\": \"copies alone\", \"seconds\": [",
                i > 0 ? "," : "", ways[i].name, 2 * bytes / seconds[i][rounds / 2] / 1e9,
                2 * bytes / seconds[0][rounds / 2] / 1e9);
        for (unsigned round = 0; round < rounds; round++)
            fprintf(file, "%s%.6f", round > 0 ? ", " : "", seconds[i][round]);
        fprintf(file, "]}");
    }
    fprintf(file, "\n ]}\n");
    return fclose(file);
}

int main(int argc, char **argv)
{
    static double seconds[WAYS][ROUNDS];
    unsigned rounds = 3, chunks = 64;
    const char *json = NULL;
    double bytes;

    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--gib") == 0)
            chunks =
                (unsigned)(strtod(argv[i + 1], NULL) * (double)(1ull << 30) / (double)CHUNK);
        else if (strcmp(argv[i], "--rounds") == 0)
            rounds = (unsigned)strtoul(argv[i + 1], NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            json = argv[i + 1];
        else
            chunks = 0;
    }
    if (argc % 2 == 0 || chunks < 2 || chunks > MOST || rounds < 1 || rounds > ROUNDS) {
        fprintf(stderr,
                "usage: release_bench [--gib 0.25...64] [--rounds 1...32] [--json FILE]\n");
        return 2;
    }
    board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    if (fork() == 0) {
        describe_run(chunks * CHUNK);
        _exit(0);
    }
    await_processes(1);
    for (unsigned round = 0; round < rounds; round++)
        for (unsigned i = 0; i < WAYS; i++)
            seconds[i][round] = measure_way(&ways[i], chunks);
    bytes = (double)chunks * (double)CHUNK;
    printf("%.1f GiB each way, %u rounds, medians; one process in both directions: %.1f GB/s\n",
           bytes / (double)(1ull << 30), rounds, board->bus.duplex / 1e9);
    for (unsigned i = 0; i < WAYS; i++) {
        const double median = median_of(seconds[i], rounds);

        printf("%-18s %.4f s (%.4f to %.4f) = %6.1f GB/s, %.3f of copies alone, %.3f of one "
               "process\n",
               ways[i].name, median, seconds[i][0], seconds[i][rounds - 1],
               2 * bytes / median / 1e9, seconds[0][rounds / 2] / median,
               2 * bytes / median / board->bus.duplex);
    }
    return json != NULL &&
           write_json(json, (const double(*)[ROUNDS])seconds, rounds, bytes) != 0;
}

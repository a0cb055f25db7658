/* SPDX-License-Identifier: Apache-2.0
 *
 * moves.c: a program that does with device memory what it is told on standard input, a command
 * a line, so that a test can move its memory in between and look at how many bytes that took.
 *
 *   alloc MIB      a block of random bytes
 *   zero MIB       a block of zeros
 *   export MIB     as alloc, in one piece of the program's own that may be exported
 *   network MIB    the same, in memory that network cards can reach
 *   share MIB      memory of the program's own that never gets an address is exported
 *   unmap I        block I, an exported one, has no address until ...
 *   map I          ... it has it again
 *   rights I F     device 0 gets the rights F (CUmemAccess_flags) of block I, an exported one
 *   has I F        it has exactly these; else error 999
 *   reaches I      network cards can reach block I
 *   bare I         block I, an exported one, is exported by a thread without a context
 *   unreserve I    block I's address space is freed, as if the program had reserved it
 *   change I AT    one byte of block I, AT MiB from its start, becomes another one
 *   clear I AT N   N MiB of block I from there become zeros
 *   touch          a launch-like call: everything must be on the card
 *   check          compares every byte of every block
 *   contexts N     N more contexts; the last of them is the current one from now on
 *   green          a green context, the current one from now on
 *   leave          the primary context ends, and what was allocated in it
 *   device N       a context on device N, the current one from now on
 *   peer           a context on device 1, which gets access to the memory of device 0
 *   reached I      block I is on the card and device 1 has access to all of it; else error 999
 *   late I AT      as change, in a second, when all other calls have been answered long ago
 *   spin           a kernel that runs until ...
 *   stop           ... that, or a minute is over
 *   poke           work of a stream of its own, which is not waited for
 *   capture        that stream is captured until ...
 *   relax          the thread may allocate beside it
 *   record N       a set of N MiB of new memory is recorded there
 *   captured       ... that, and what was recorded is run
 *   graph I N      N launches of a graph of one kernel that makes all of block I zeros; the graph
 *                is made the first time
 *   launch I N     N launches of that kernel, not waited for
 *   free I
 *   await I        as free, while a spin goes on that is stopped meanwhile; error 999 if it still
 *                  goes on then
 *   child          a forked process that does nothing until this one ends
 *   children       those end
 *   shut N         closes every number from N on
 *   numbers N      so many descriptors may it open from now on
 *   steal          closes every number that is not the simulated driver's and opens files and
 *                sockets of its own there
 *   kept         those are where they were opened, all of them, and nobody has written or read
 *                there; else error 999
 *   limit MIB      so much private memory may the process have from now on beyond what it has
 *   disk MIB       so long may its files become; 0: as long as it likes
 *
 * Each is answered with a line: "ok", "error N" (a CUresult), or "wrong BLOCK BYTE". Ends at
 * the end of the input with 0; 2 for a command it does not know. One thread, and those of work.c.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/runtime/check.h"
#include "tests/runtime/moves.h"
#include "tests/runtime/numbers.h"
#include "tests/runtime/random.h"
#include "tests/runtime/work.h"

#define BLOCKS   64
#define CHILDREN 64

static struct moves_block blocks[BLOCKS];
static uint64_t seed = 1;
static pid_t children[CHILDREN];
static unsigned child_count;

__attribute__((visibility("default"))) const struct simcuda_kernel simcuda_kernels[] = {
    {"spin", work_spin_run, 1, (const uint32_t[]){sizeof(void *)}},
    {"wipe", work_wipe_run, 2, (const uint32_t[]){sizeof(void *), sizeof(uint64_t)}},
    {NULL, NULL, 0, NULL}};

enum kind { PLAIN, ZERO, EXPORTABLE, FOR_NETWORK };

static CUresult allocate_block(size_t mib, enum kind kind)
{
    const bool zero = kind == ZERO, own = kind >= EXPORTABLE;
    unsigned i = 0;
    CUresult result;

    while (blocks[i].device != 0)
        i++;
    CHECK(i + 1 < BLOCKS);
    blocks[i].own = own;
    blocks[i].bytes = mib * MIB;
    result = own ? moves_map_exportable(&blocks[i], kind == FOR_NETWORK)
                 : cuMemAlloc(&blocks[i].device, mib * MIB);
    if (result != CUDA_SUCCESS) {
        blocks[i] = (struct moves_block){0};
        return result;
    }
    blocks[i].shadow = calloc(1, blocks[i].bytes);
    CHECK(blocks[i].shadow != NULL);
    for (size_t at = 0; !zero && at < blocks[i].bytes; at += sizeof seed) {
        const uint64_t word = random_next(&seed);

        memcpy(blocks[i].shadow + at, &word, sizeof word);
    }
    return zero ? cuMemsetD8(blocks[i].device, 0, blocks[i].bytes)
                : cuMemcpyHtoD(blocks[i].device, blocks[i].shadow, blocks[i].bytes);
}

/* Allocates all that is said to be free, as one block that the card then uses. */
static CUresult fill_card(void)
{
    size_t left, total;
    const CUresult result = cuMemGetInfo(&left, &total);

    return result == CUDA_SUCCESS ? allocate_block(left / MIB, ZERO) : result;
}

static CUresult release_block(struct moves_block *block, CUresult (*release)(CUdeviceptr))
{
    const CUresult result =
        block->own ? cuMemUnmap(block->device, block->bytes) : release(block->device);

    free(block->shadow);
    *block = (struct moves_block){0};
    return result;
}

static CUresult write_span(const struct moves_block *block, size_t at, size_t bytes, bool zero)
{
    CHECK(block->device != 0 && at + bytes <= block->bytes);
    if (zero) {
        memset(block->shadow + at, 0, bytes);
        return cuMemsetD8(block->device + at, 0, bytes);
    }
    block->shadow[at] ^= 0x55;
    return cuMemcpyHtoD(block->device + at, block->shadow + at, bytes);
}

static CUresult wipe_block(struct moves_block *block, size_t times)
{
    CUresult result = CUDA_SUCCESS;

    CHECK(block->device != 0);
    memset(block->shadow, 0, block->bytes);
    if (block->wipe == NULL)
        result = work_wipe_graph(&block->wipe, block->device, block->bytes);
    return result == CUDA_SUCCESS ? work_wipe(block->wipe, times) : result;
}

static CUresult launch_wipes(struct moves_block *block, size_t times)
{
    CHECK(block->device != 0);
    memset(block->shadow, 0, block->bytes);
    return work_wipe_now(block->device, block->bytes, times);
}

static CUresult make_contexts(size_t count)
{
    CUresult result = CUDA_SUCCESS;
    CUcontext context = NULL;

    while (count-- > 0 && result == CUDA_SUCCESS) {
        result = cuCtxCreate(&context, NULL, 0, 0);
        if (result == CUDA_SUCCESS)
            result = cuCtxPopCurrent(&context);
    }
    return result == CUDA_SUCCESS ? cuCtxSetCurrent(context) : result;
}

static CUresult go_to_device(size_t ordinal)
{
    CUcontext context;

    return cuCtxCreate(&context, NULL, 0, (CUdevice)ordinal);
}

static CUresult open_to_peer(void)
{
    CUcontext here, other;
    CUresult result = cuCtxGetCurrent(&here);

    if (result == CUDA_SUCCESS)
        result = cuCtxCreate(&other, NULL, 0, 1);
    if (result == CUDA_SUCCESS)
        result = cuCtxEnablePeerAccess(here, 0);
    return result == CUDA_SUCCESS ? cuCtxPopCurrent(&other) : result;
}

static CUresult is_reached(const struct moves_block *block)
{
    const CUmemLocation peer = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    unsigned long long flags = 0;
    CUresult result = CUDA_SUCCESS;

    for (size_t at = 0; at < block->bytes && result == CUDA_SUCCESS; at += MIB) {
        result = cuMemGetAccess(&flags, &peer, block->device + at);
        if (result == CUDA_SUCCESS && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
            result = CUDA_ERROR_UNKNOWN;
    }
    return result;
}

static void CUDA_CB sleep_a_second(void *unused)
{
    (void)unused;
    sleep(1);
}

static CUresult write_late(const struct moves_block *block, size_t at)
{
    CUstream stream;
    CUresult result = cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);

    CHECK(block->device != 0 && at < block->bytes);
    block->shadow[at] ^= 0x55;
    if (result == CUDA_SUCCESS)
        result = cuLaunchHostFunc(stream, sleep_a_second, NULL);
    return result == CUDA_SUCCESS
               ? cuMemsetD8Async(block->device + at, block->shadow[at], 1, stream)
               : result;
}

static CUresult touch_blocks(void)
{
    uint8_t byte;

    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].device != 0)
            return cuMemcpyDtoH(&byte, blocks[i].device, 1);
    return CUDA_ERROR_NOT_FOUND;
}

/* false: it has said what is wrong */
static bool compare_block(const struct moves_block *block, CUresult *result)
{
    static uint8_t copy[MIB]; /* there may be no memory for more */

    for (size_t from = 0; from < block->bytes && *result == CUDA_SUCCESS; from += sizeof copy) {
        *result = cuMemcpyDtoH(copy, block->device + from, sizeof copy);
        if (memcmp(copy, block->shadow + from, sizeof copy) == 0)
            continue;
        for (size_t i = 0; i < sizeof copy && *result == CUDA_SUCCESS; i++)
            if (copy[i] != block->shadow[from + i]) {
                printf("wrong %td %zu\n", block - blocks, from + i);
                return false;
            }
    }
    return true;
}

static void have_child(void)
{
    const pid_t child = fork();

    CHECK(child >= 0);
    if (child > 0) {
        CHECK(child_count < CHILDREN);
        children[child_count++] = child;
        return;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        pause();
}

static void end_children(void)
{
    while (child_count != 0) {
        CHECK(kill(children[--child_count], SIGKILL) == 0);
        CHECK(waitpid(children[child_count], NULL, 0) == children[child_count]);
    }
}

/* The thread may allocate beside its own captures. */
static CUresult relax_captures(void)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;

    return cuThreadExchangeStreamCaptureMode(&mode);
}

/* "WORD [N [N [N]]]": how many there are */
static int parse_line(const char *line, char *word, size_t size, size_t number[3])
{
    const char *at = line + strcspn(line, " \n");
    char *end;
    int words = 1;

    snprintf(word, size, "%.*s", (int)(at - line), line);
    for (int i = 0; i < 3; i++, at = end, words++) {
        number[i] = strtoull(at, &end, 10);
        if (end == at)
            break;
    }
    return words;
}

static bool obey_line(const char *line, CUresult *result)
{
    size_t number[3] = {0};
    char word[16];
    const int words = parse_line(line, word, sizeof word, number);
    size_t i = number[0];
    const size_t at = number[1], count = number[2];

    *result = CUDA_SUCCESS;
    if (strcmp(word, "alloc") == 0 && words == 2)
        *result = allocate_block(i, PLAIN);
    else if (strcmp(word, "zero") == 0 && words == 2)
        *result = allocate_block(i, ZERO);
    else if (strcmp(word, "fill") == 0)
        *result = fill_card();
    else if (strcmp(word, "export") == 0 && words == 2)
        *result = allocate_block(i, EXPORTABLE);
    else if (strcmp(word, "network") == 0 && words == 2)
        *result = allocate_block(i, FOR_NETWORK);
    else if (strcmp(word, "share") == 0 && words == 2)
        *result = moves_share(i);
    else if (strcmp(word, "unmap") == 0 && words == 2 && i < BLOCKS)
        *result = moves_unmap(&blocks[i]);
    else if (strcmp(word, "map") == 0 && words == 2 && i < BLOCKS)
        *result = moves_map(&blocks[i]);
    else if (strcmp(word, "rights") == 0 && words == 3 && i < BLOCKS)
        *result = moves_set_rights(&blocks[i], (unsigned)at);
    else if (strcmp(word, "has") == 0 && words == 3 && i < BLOCKS)
        *result = moves_has_rights(&blocks[i], (unsigned)at);
    else if (strcmp(word, "reaches") == 0 && words == 2 && i < BLOCKS)
        *result = moves_reaches_network(&blocks[i]);
    else if (strcmp(word, "bare") == 0 && words == 2 && i < BLOCKS)
        *result = moves_export_bare(&blocks[i]);
    else if (strcmp(word, "unreserve") == 0 && words == 2 && i < BLOCKS)
        *result = cuMemAddressFree(blocks[i].device, blocks[i].bytes);
    else if (strcmp(word, "change") == 0 && words == 3 && i < BLOCKS)
        *result = write_span(&blocks[i], at * MIB, 1, false);
    else if (strcmp(word, "clear") == 0 && words == 4 && i < BLOCKS)
        *result = write_span(&blocks[i], at * MIB, count * MIB, true);
    else if (strcmp(word, "graph") == 0 && words == 3 && i < BLOCKS)
        *result = wipe_block(&blocks[i], at);
    else if (strcmp(word, "launch") == 0 && words == 3 && i < BLOCKS)
        *result = launch_wipes(&blocks[i], at);
    else if (strcmp(word, "contexts") == 0 && words == 2)
        *result = make_contexts(i);
    else if (strcmp(word, "green") == 0)
        begin_green();
    else if (strcmp(word, "leave") == 0)
        *result = cuDevicePrimaryCtxReset(0);
    else if (strcmp(word, "device") == 0 && words == 2)
        *result = go_to_device(i);
    else if (strcmp(word, "peer") == 0)
        *result = open_to_peer();
    else if (strcmp(word, "reached") == 0 && words == 2 && i < BLOCKS)
        *result = is_reached(&blocks[i]);
    else if (strcmp(word, "late") == 0 && words == 3 && i < BLOCKS)
        *result = write_late(&blocks[i], at * MIB);
    else if (strcmp(word, "touch") == 0)
        *result = touch_blocks();
    else if (strcmp(word, "spin") == 0)
        *result = work_spin();
    else if (strcmp(word, "stop") == 0)
        work_stop();
    else if (strcmp(word, "poke") == 0)
        *result = work_poke();
    else if (strcmp(word, "capture") == 0)
        *result = work_capture();
    else if (strcmp(word, "record") == 0 && words == 2)
        *result = work_record(i * MIB);
    else if (strcmp(word, "relax") == 0)
        *result = relax_captures();
    else if (strcmp(word, "captured") == 0)
        *result = work_captured();
    else if (strcmp(word, "free") == 0 && words == 2 && i < BLOCKS)
        *result = release_block(&blocks[i], cuMemFree);
    else if (strcmp(word, "await") == 0 && words == 2 && i < BLOCKS)
        *result = release_block(&blocks[i], work_free);
    else if (strcmp(word, "child") == 0)
        have_child();
    else if (strcmp(word, "children") == 0)
        end_children();
    else if (strcmp(word, "shut") == 0 && words == 2)
        CHECK(close_range((unsigned)i, ~0u, 0) == 0);
    else if (strcmp(word, "numbers") == 0 && words == 2)
        limit_numbers(i);
    else if (strcmp(word, "steal") == 0)
        steal_numbers();
    else if (strcmp(word, "kept") == 0)
        *result = numbers_are_kept() ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    else if (strcmp(word, "limit") == 0 && words == 2)
        limit_memory(i);
    else if (strcmp(word, "disk") == 0 && words == 2)
        limit_files(i);
    else if (strcmp(word, "check") == 0)
        for (i = 0; i < BLOCKS && *result == CUDA_SUCCESS; i++) {
            if (blocks[i].device != 0 && !compare_block(&blocks[i], result))
                return false;
        }
    else
        exit(2);
    return true;
}

int main(void)
{
    char line[64];
    CUresult result;

    setvbuf(stdout, NULL, _IOLBF, 0);
    begin_context();
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (!obey_line(line, &result))
            continue;
        if (result == CUDA_SUCCESS)
            puts("ok");
        else
            printf("error %d\n", (int)result);
    }
    return 0;
}

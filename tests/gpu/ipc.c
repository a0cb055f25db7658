/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc.c: memory that processes share by handles (legacy CUDA IPC).
 *
 *   ipc told            reads commands, one a line, and answers each with a line: "ok [...]",
 *                       "error CURESULT", or "bad OFFSET" (see commands[])
 *   ipc pair fork BYTES a parent that exports and a child that opens, as NVIDIA's sample
 *   ipc pair spawn BYTES simpleIPC: by fork() before the first call of CUDA, or by exec(). "ok"
 *                       and 0, or a line for what was not so and 1
 *
 * Bytes are set and checked in blocks of a MiB, each with a value of its own. Built without CUDA
 * libraries: everything by dlsym.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/bad_input.h"

#define HANDLE_BYTES ((size_t)64)
#define PIECES       64
#define PART         (16 * MIB) /* bytes that are looked at together */

void *driver;

static struct piece {
    CUdeviceptr address;
    size_t bytes;
    bool opened;
} pieces[PIECES];

static unsigned *buffer; /* PART bytes */

/* --- calls --- */

static CUresult begin_driver(int ordinal)
{
    CUcontext context;
    CUdevice device;
    CUresult result;

#ifndef GS_LINKED
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL)
        return CUDA_ERROR_NOT_INITIALIZED;
#endif
    buffer = malloc(PART);
    result = CALL(cuInit, cuInit_v2000)(0);
    if (result == CUDA_SUCCESS)
        result = CALL(cuDeviceGet, cuDeviceGet_v2000)(&device, ordinal);
    if (result == CUDA_SUCCESS)
        result =
            CALL(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain_v7000)(&context, device);
    if (result == CUDA_SUCCESS)
        result = CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(context);
    return result;
}

CUresult allocate(CUdeviceptr *p, size_t bytes)
{
    return CALL(cuMemAlloc_v2, cuMemAlloc_v3020)(p, bytes);
}

CUresult release(CUdeviceptr p)
{
    return CALL(cuMemFree_v2, cuMemFree_v3020)(p);
}

static CUresult get_handle(CUdeviceptr address, CUipcMemHandle *handle)
{
    return CALL(cuIpcGetMemHandle, cuIpcGetMemHandle_v4010)(handle, address);
}

static CUresult open_handle(const CUipcMemHandle *handle, unsigned flags, CUdeviceptr *address)
{
    return CALL(cuIpcOpenMemHandle_v2, cuIpcOpenMemHandle_v11000)(address, *handle, flags);
}

static CUresult close_handle(CUdeviceptr address)
{
    return CALL(cuIpcCloseMemHandle, cuIpcCloseMemHandle_v4010)(address);
}

static CUresult wait_for_card(void)
{
    return CALL(cuCtxSynchronize, cuCtxSynchronize_v2000)();
}

/* --- bytes --- */

static unsigned value_of(unsigned seed, size_t block)
{
    return seed * 2654435761u + (unsigned)block * 40503u + 1;
}

static size_t lesser_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static CUresult fill_bytes(CUdeviceptr address, size_t bytes, unsigned seed)
{
    CUresult result = CUDA_SUCCESS;

    for (size_t at = 0; at < bytes && result == CUDA_SUCCESS; at += MIB)
        result = CALL(cuMemsetD32_v2, cuMemsetD32_v3020)(address + at, value_of(seed, at / MIB),
                                                         lesser_of(bytes - at, MIB) / 4);
    return result == CUDA_SUCCESS ? wait_for_card() : result;
}

/* words that are not the value; without a branch, so that the compiler makes vectors of it */
static size_t count_wrong(const unsigned *words, size_t count, unsigned value)
{
    size_t wrong = 0;

    for (size_t i = 0; i < count; i++)
        wrong += words[i] != value;
    return wrong;
}

/* *bad: the block that is not right, or SIZE_MAX */
static CUresult check_bytes(CUdeviceptr address, size_t bytes, unsigned seed, size_t *bad)
{
    CUresult result = CUDA_SUCCESS;

    *bad = SIZE_MAX;
    for (size_t at = 0; at < bytes && result == CUDA_SUCCESS && *bad == SIZE_MAX; at += PART) {
        const size_t part = lesser_of(bytes - at, PART);

        result = CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(buffer, address + at, part);
        for (size_t in = 0; in < part && result == CUDA_SUCCESS && *bad == SIZE_MAX; in += MIB)
            if (count_wrong(buffer + in / 4, lesser_of(part - in, MIB) / 4,
                            value_of(seed, (at + in) / MIB)) != 0)
                *bad = at + in;
    }
    return result;
}

/* --- told --- */

static void answer(CUresult result)
{
    if (result == CUDA_SUCCESS)
        printf("ok\n");
    else
        printf("error %d\n", (int)result);
}

static void answer_piece(CUresult result, CUdeviceptr address, size_t bytes, bool opened)
{
    unsigned i = 0;

    if (result != CUDA_SUCCESS) {
        answer(result);
        return;
    }
    while (i < PIECES - 1 && pieces[i].address != 0)
        i++;
    pieces[i] = (struct piece){address, bytes, opened};
    printf("ok %u\n", i);
}

static struct piece *piece_of(const char *word)
{
    return &pieces[strtoul(word, NULL, 10) % PIECES];
}

static void tell_alloc(const char *a, const char *b)
{
    const size_t bytes = strtoull(a, NULL, 10);
    CUdeviceptr address = 0;
    const CUresult result = allocate(&address, bytes);

    (void)b;
    answer_piece(result, address, bytes, false);
}

static void tell_fill(const char *a, const char *b)
{
    answer(
        fill_bytes(piece_of(a)->address, piece_of(a)->bytes, (unsigned)strtoul(b, NULL, 10)));
}

static void tell_check(const char *a, const char *b)
{
    size_t bad;
    const CUresult result = check_bytes(piece_of(a)->address, piece_of(a)->bytes,
                                        (unsigned)strtoul(b, NULL, 10), &bad);

    if (result == CUDA_SUCCESS && bad != SIZE_MAX)
        printf("bad %zu\n", bad);
    else
        answer(result);
}

/* of an address that many bytes into it */
static void tell_handle(const char *a, const char *b)
{
    CUipcMemHandle handle;
    unsigned char bytes[HANDLE_BYTES];
    const CUresult result = get_handle(piece_of(a)->address + strtoull(b, NULL, 10), &handle);

    if (result != CUDA_SUCCESS) {
        answer(result);
        return;
    }
    memcpy(bytes, &handle, sizeof bytes);
    printf("ok ");
    for (size_t i = 0; i < sizeof bytes; i++)
        printf("%02x", bytes[i]);
    printf("\n");
}

/* as many bytes as the driver says there are; the second word: flags, 1 without it */
static void tell_open(const char *a, const char *b)
{
    unsigned char bytes[HANDLE_BYTES] = {0};
    CUdeviceptr address = 0, base = 0;
    CUipcMemHandle handle;
    size_t size = 0;
    CUresult result;

    for (size_t i = 0; i < sizeof bytes && strlen(a) >= 2 * i + 2; i++) {
        const char digits[3] = {a[2 * i], a[2 * i + 1], 0};

        bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    memcpy(&handle, bytes, sizeof handle);
    result = open_handle(&handle, *b == '\0' ? 1u : (unsigned)strtoul(b, NULL, 10), &address);
    if (result == CUDA_SUCCESS)
        result =
            CALL(cuMemGetAddressRange_v2, cuMemGetAddressRange_v3020)(&base, &size, address);
    if (result == CUDA_SUCCESS && base != address)
        printf("bad base\n");
    else
        answer_piece(result, address, size, true);
}

static void tell_same(const char *a, const char *b)
{
    printf(piece_of(a)->address == piece_of(b)->address ? "ok\n" : "bad 0\n");
}

static void tell_size(const char *a, const char *b)
{
    (void)b;
    printf("ok %zu\n", piece_of(a)->bytes);
}

/* an address that many bytes into it */
static void tell_close(const char *a, const char *b)
{
    const CUresult result = close_handle(piece_of(a)->address + strtoull(b, NULL, 10));

    if (result == CUDA_SUCCESS)
        piece_of(a)->address = 0;
    answer(result);
}

static void tell_free(const char *a, const char *b)
{
    const CUresult result = CALL(cuMemFree_v2, cuMemFree_v3020)(piece_of(a)->address);

    (void)b;
    if (result == CUDA_SUCCESS)
        piece_of(a)->address = 0;
    answer(result);
}

/* from the first to the second */
static void tell_copy(const char *a, const char *b)
{
    const size_t bytes = lesser_of(piece_of(a)->bytes, piece_of(b)->bytes);
    const CUresult result = CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(
        piece_of(b)->address, piece_of(a)->address, bytes);

    answer(result == CUDA_SUCCESS ? wait_for_card() : result);
}

/* What the driver says of the pointer: memory type, and whether it has a base. */
static void tell_attributes(const char *a, const char *b)
{
    const CUdeviceptr address = piece_of(a)->address;
    unsigned type = 0;
    int ordinal = -1;
    CUdeviceptr start = 0;
    const CUresult first = CALL(cuPointerGetAttribute, cuPointerGetAttribute_v4000)(
        &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    const CUresult second = CALL(cuPointerGetAttribute, cuPointerGetAttribute_v4000)(
        &ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address);
    const CUresult third = CALL(cuPointerGetAttribute, cuPointerGetAttribute_v4000)(
        &start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address);

    (void)b;
    printf("ok %d %u %d %d %d %d\n", (int)first, type, (int)second, ordinal, (int)third,
           start == address);
}

/* forgets an index, whatever it was */
static void tell_forget(const char *a, const char *b)
{
    (void)b;
    piece_of(a)->address = 0;
    printf("ok\n");
}

/* a child that lives on without CUDA */
static void tell_child(const char *a, const char *b)
{
    const pid_t child = fork();

    (void)b;
    if (child == 0) {
        sleep((unsigned)strtoul(a, NULL, 10));
        _exit(0);
    }
    printf(child > 0 ? "ok %d\n" : "error %d\n", (int)child);
}

static const struct {
    const char *name;
    void (*run)(const char *a, const char *b);
} commands[] = {
    {"alloc", tell_alloc},   {"fill", tell_fill},   {"check", tell_check},
    {"handle", tell_handle}, {"open", tell_open},   {"close", tell_close},
    {"free", tell_free},     {"copy", tell_copy},   {"same", tell_same},
    {"size", tell_size},     {"child", tell_child}, {"attributes", tell_attributes},
    {"forget", tell_forget},
};

static void obey(char *line)
{
    const char *word[3] = {"", "", ""};
    char *rest = NULL, *at = strtok_r(line, " \n", &rest);

    for (unsigned i = 0; i < 3 && at != NULL; i++, at = strtok_r(NULL, " \n", &rest))
        word[i] = at;
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (strcmp(commands[i].name, word[0]) == 0) {
            commands[i].run(word[1], word[2]);
            fflush(stdout);
            return;
        }
    printf("error: no command %s\n", word[0]);
    fflush(stdout);
}

static int told(int ordinal)
{
    char line[512];
    const CUresult result = begin_driver(ordinal);

    answer(result);
    fflush(stdout);
    while (result == CUDA_SUCCESS && fgets(line, sizeof line, stdin) != NULL)
        obey(line);
    return result != CUDA_SUCCESS;
}

/* --- pair --- */

static void require(bool good, const char *what, CUresult result)
{
    if (good)
        return;
    printf("%s: CUresult %d\n", what, (int)result);
    exit(1);
}

static bool read_all(int fd, void *to, size_t bytes)
{
    return read(fd, to, bytes) == (ssize_t)bytes; /* small: it comes as a whole */
}

static int open_and_change(int in, int out, size_t bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    size_t bad;
    CUresult result = begin_driver(0);

    require(result == CUDA_SUCCESS, "child: begin", result);
    require(read_all(in, &handle, sizeof handle), "child: no handle", result);
    result = open_handle(&handle, 1, &address);
    require(result == CUDA_SUCCESS, "child: open", result);
    result = check_bytes(address, bytes, 1, &bad);
    require(result == CUDA_SUCCESS && bad == SIZE_MAX, "child: bytes", result);
    result = fill_bytes(address, bytes, 2);
    require(result == CUDA_SUCCESS, "child: fill", result);
    result = close_handle(address);
    require(result == CUDA_SUCCESS, "child: close", result);
    require(write(out, "", 1) == 1, "child: write", result);
    return 0;
}

static int export_and_check(int in, int out, size_t bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    size_t bad;
    char byte;
    CUresult result = begin_driver(0);

    require(result == CUDA_SUCCESS, "begin", result);
    result = allocate(&address, bytes);
    require(result == CUDA_SUCCESS, "alloc", result);
    result = fill_bytes(address, bytes, 1);
    require(result == CUDA_SUCCESS, "fill", result);
    result = get_handle(address, &handle);
    require(result == CUDA_SUCCESS, "handle", result);
    require(write(out, &handle, sizeof handle) == sizeof handle, "write", result);
    require(read_all(in, &byte, 1), "the child has failed", result);
    result = check_bytes(address, bytes, 2, &bad);
    require(result == CUDA_SUCCESS && bad == SIZE_MAX, "bytes", result);
    result = release(address);
    require(result == CUDA_SUCCESS, "free", result);
    return 0;
}

static int pair(char **argv, bool spawn)
{
    const size_t bytes = strtoull(argv[3], NULL, 10);
    int there[2], back[2], status = 0, code;
    pid_t child;

    if (pipe(there) != 0 || pipe(back) != 0 || (child = fork()) < 0)
        return 1;
    if (child == 0) {
        char in[16], out[16];

        close(there[1]);
        close(back[0]);
        if (!spawn)
            exit(open_and_change(there[0], back[1], bytes));
        snprintf(in, sizeof in, "%d", there[0]);
        snprintf(out, sizeof out, "%d", back[1]);
        execl("/proc/self/exe", argv[0], "child", in, out, argv[3], (char *)NULL);
        _exit(127);
    }
    close(there[0]);
    close(back[1]);
    code = export_and_check(back[0], there[1], bytes);
    if (waitpid(child, &status, 0) != child || status != 0)
        code = 1;
    if (code == 0)
        printf("ok\n");
    return code;
}

int main(int argc, char **argv)
{
    if (argc >= 2 && strcmp(argv[1], "told") == 0)
        return told(argc > 2 ? (int)strtol(argv[2], NULL, 10) : 0);
    if (argc == 4 && strcmp(argv[1], "pair") == 0)
        return pair(argv, strcmp(argv[2], "spawn") == 0);
    if (argc == 5 && strcmp(argv[1], "child") == 0)
        return open_and_change((int)strtol(argv[2], NULL, 10), (int)strtol(argv[3], NULL, 10),
                               strtoull(argv[4], NULL, 10));
    fprintf(stderr, "usage: ipc told [DEVICE] | ipc pair fork|spawn BYTES\n");
    return 2;
}

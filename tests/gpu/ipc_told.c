/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc_told.c: `ipc told`: commands of standard input, one a line (see commands[]). One thread, and
 * those of `storm`.
 */
#include <pthread.h>
#include <unistd.h>

#include "tests/gpu/ipc.h"

#define HANDLE_BYTES ((size_t)64)
#define PIECES       64
#define STORMERS     4

static struct piece {
    CUdeviceptr address;
    size_t bytes;
    bool opened;
} pieces[PIECES];

static void answer_result(CUresult result)
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
        answer_result(result);
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
    answer_result(ipc_fill_bytes(piece_of(a)->address, piece_of(a)->bytes,
                                 (unsigned)strtoul(b, NULL, 10)));
}

static void tell_check(const char *a, const char *b)
{
    size_t bad;
    const CUresult result = ipc_check_bytes(piece_of(a)->address, piece_of(a)->bytes,
                                            (unsigned)strtoul(b, NULL, 10), &bad);

    if (result == CUDA_SUCCESS && bad != SIZE_MAX)
        printf("bad %zu\n", bad);
    else
        answer_result(result);
}

/* of an address that many bytes into it */
static void tell_handle(const char *a, const char *b)
{
    CUipcMemHandle handle;
    unsigned char bytes[HANDLE_BYTES];
    const CUresult result =
        ipc_get_handle(piece_of(a)->address + strtoull(b, NULL, 10), &handle);

    if (result != CUDA_SUCCESS) {
        answer_result(result);
        return;
    }
    memcpy(bytes, &handle, sizeof bytes);
    printf("ok ");
    for (size_t i = 0; i < sizeof bytes; i++)
        printf("%02x", bytes[i]);
    printf("\n");
}

static CUipcMemHandle parse_handle(const char *word)
{
    unsigned char bytes[HANDLE_BYTES] = {0};
    CUipcMemHandle handle;

    for (size_t i = 0; i < sizeof bytes && strlen(word) >= 2 * i + 2; i++) {
        const char digits[3] = {word[2 * i], word[2 * i + 1], 0};

        bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
    }
    memcpy(&handle, bytes, sizeof handle);
    return handle;
}

/* as many bytes as the driver says there are; the second word: flags, 1 without it */
static void tell_open(const char *a, const char *b)
{
    const CUipcMemHandle handle = parse_handle(a);
    CUdeviceptr address = 0, base = 0;
    size_t size = 0;
    CUresult result;

    result =
        ipc_open_handle(&handle, *b == '\0' ? 1u : (unsigned)strtoul(b, NULL, 10), &address);
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
    const CUresult result = ipc_close_handle(piece_of(a)->address + strtoull(b, NULL, 10));

    if (result == CUDA_SUCCESS)
        piece_of(a)->address = 0;
    answer_result(result);
}

static void tell_free(const char *a, const char *b)
{
    const CUresult result = CALL(cuMemFree_v2, cuMemFree_v3020)(piece_of(a)->address);

    (void)b;
    if (result == CUDA_SUCCESS)
        piece_of(a)->address = 0;
    answer_result(result);
}

/* from the first to the second */
static void tell_copy(const char *a, const char *b)
{
    const size_t bytes = ipc_lesser_of(piece_of(a)->bytes, piece_of(b)->bytes);
    const CUresult result = CALL(cuMemcpyDtoD_v2, cuMemcpyDtoD_v3020)(
        piece_of(b)->address, piece_of(a)->address, bytes);

    answer_result(result == CUDA_SUCCESS ? ipc_wait_for_card() : result);
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

static bool lingers;

static void linger(void)
{
    while (lingers && getchar() != EOF)
        continue;
}

/* ends, and does not get beyond its exit handlers before the end of standard input */
static void tell_linger(const char *a, const char *b)
{
    (void)a;
    (void)b;
    lingers = true;
    printf("ok\n");
    fflush(stdout);
    exit(0); /* NOLINT(concurrency-mt-unsafe): it has no other threads */
}

struct storm {
    pthread_t thread;
    CUcontext context;
    CUipcMemHandle handle;
    unsigned rounds, word;
    CUresult result;
    bool bad;
};

/* Opens and closes what the other threads open and close, too; the first word must be there. */
static void *open_and_close(void *of)
{
    struct storm *storm = of;
    CUdeviceptr address;

    storm->result = CALL(cuCtxSetCurrent, cuCtxSetCurrent_v4000)(storm->context);
    for (unsigned i = 0; i < storm->rounds && storm->result == CUDA_SUCCESS; i++) {
        unsigned word = 0;

        storm->result = ipc_open_handle(&storm->handle, 1, &address);
        if (storm->result == CUDA_SUCCESS)
            storm->result = CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(&word, address, 4);
        storm->bad |= word != storm->word;
        if (storm->result == CUDA_SUCCESS)
            storm->result = ipc_close_handle(address);
    }
    return NULL;
}

/* of a handle, by several threads at the same time, so many times */
static void tell_storm(const char *a, const char *b)
{
    struct storm storms[STORMERS];
    CUcontext context = NULL;
    CUdeviceptr address = 0;
    CUresult result = CALL(cuCtxGetCurrent, cuCtxGetCurrent_v4000)(&context);
    const CUipcMemHandle handle = parse_handle(a);
    unsigned word = 0;
    bool bad = false;

    if (result == CUDA_SUCCESS)
        result = ipc_open_handle(&handle, 1, &address);
    if (result == CUDA_SUCCESS)
        result = CALL(cuMemcpyDtoH_v2, cuMemcpyDtoH_v3020)(&word, address, 4);
    if (result == CUDA_SUCCESS)
        result = ipc_close_handle(address);
    for (unsigned i = 0; i < STORMERS; i++) {
        storms[i] = (struct storm){.context = context,
                                   .handle = handle,
                                   .rounds = (unsigned)strtoul(b, NULL, 10),
                                   .word = word};
        pthread_create(&storms[i].thread, NULL, open_and_close, &storms[i]);
    }
    for (unsigned i = 0; i < STORMERS; i++) {
        pthread_join(storms[i].thread, NULL);
        bad |= storms[i].bad;
        result = result == CUDA_SUCCESS ? storms[i].result : result;
    }
    if (result == CUDA_SUCCESS && bad)
        printf("bad 0\n");
    else
        answer_result(result);
}

static const struct {
    const char *name;
    void (*run)(const char *a, const char *b);
} commands[] = {
    {"alloc", tell_alloc},   {"fill", tell_fill},   {"check", tell_check},
    {"handle", tell_handle}, {"open", tell_open},   {"close", tell_close},
    {"free", tell_free},     {"copy", tell_copy},   {"same", tell_same},
    {"size", tell_size},     {"child", tell_child}, {"attributes", tell_attributes},
    {"forget", tell_forget}, {"storm", tell_storm}, {"linger", tell_linger},
};

static void obey_line(char *line)
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

int ipc_told(int ordinal)
{
    char line[512];
    CUresult result = CUDA_ERROR_UNKNOWN;

    if (atexit(linger) == 0) /* the handlers of the library and the driver run before it */
        result = ipc_begin_driver(ordinal);
    answer_result(result);
    fflush(stdout);
    while (result == CUDA_SUCCESS && fgets(line, sizeof line, stdin) != NULL)
        obey_line(line);
    return result != CUDA_SUCCESS;
}

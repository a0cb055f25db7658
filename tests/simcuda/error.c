/* SPDX-License-Identifier: Apache-2.0
 *
 * error.c: owns the names of the driver's results, and their texts: the words of the name ("out
 * of memory"). Invariants: none. Threads: any; the texts are made under sim.lock.
 */
#include <string.h>
#include "tests/simcuda/sim.h"

#define ROW(code)                                                                              \
    {                                                                                          \
        code, #code, ""                                                                        \
    }

static struct {
    CUresult code;
    const char *name;
    char text[64];
} errors[] = {
    ROW(CUDA_SUCCESS),
    ROW(CUDA_ERROR_INVALID_VALUE),
    ROW(CUDA_ERROR_OUT_OF_MEMORY),
    ROW(CUDA_ERROR_NOT_INITIALIZED),
    ROW(CUDA_ERROR_DEINITIALIZED),
    ROW(CUDA_ERROR_PROFILER_DISABLED),
    ROW(CUDA_ERROR_PROFILER_NOT_INITIALIZED),
    ROW(CUDA_ERROR_PROFILER_ALREADY_STARTED),
    ROW(CUDA_ERROR_PROFILER_ALREADY_STOPPED),
    ROW(CUDA_ERROR_STUB_LIBRARY),
    ROW(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER),
    ROW(CUDA_ERROR_DEVICE_UNAVAILABLE),
    ROW(CUDA_ERROR_NO_DEVICE),
    ROW(CUDA_ERROR_INVALID_DEVICE),
    ROW(CUDA_ERROR_DEVICE_NOT_LICENSED),
    ROW(CUDA_ERROR_INVALID_IMAGE),
    ROW(CUDA_ERROR_INVALID_CONTEXT),
    ROW(CUDA_ERROR_CONTEXT_ALREADY_CURRENT),
    ROW(CUDA_ERROR_MAP_FAILED),
    ROW(CUDA_ERROR_UNMAP_FAILED),
    ROW(CUDA_ERROR_ARRAY_IS_MAPPED),
    ROW(CUDA_ERROR_ALREADY_MAPPED),
    ROW(CUDA_ERROR_NO_BINARY_FOR_GPU),
    ROW(CUDA_ERROR_ALREADY_ACQUIRED),
    ROW(CUDA_ERROR_NOT_MAPPED),
    ROW(CUDA_ERROR_NOT_MAPPED_AS_ARRAY),
    ROW(CUDA_ERROR_NOT_MAPPED_AS_POINTER),
    ROW(CUDA_ERROR_ECC_UNCORRECTABLE),
    ROW(CUDA_ERROR_UNSUPPORTED_LIMIT),
    ROW(CUDA_ERROR_CONTEXT_ALREADY_IN_USE),
    ROW(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED),
    ROW(CUDA_ERROR_INVALID_PTX),
    ROW(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT),
    ROW(CUDA_ERROR_NVLINK_UNCORRECTABLE),
    ROW(CUDA_ERROR_JIT_COMPILER_NOT_FOUND),
    ROW(CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
    ROW(CUDA_ERROR_JIT_COMPILATION_DISABLED),
    ROW(CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY),
    ROW(CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC),
    ROW(CUDA_ERROR_CONTAINED),
    ROW(CUDA_ERROR_INVALID_SOURCE),
    ROW(CUDA_ERROR_FILE_NOT_FOUND),
    ROW(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND),
    ROW(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED),
    ROW(CUDA_ERROR_OPERATING_SYSTEM),
    ROW(CUDA_ERROR_INVALID_HANDLE),
    ROW(CUDA_ERROR_ILLEGAL_STATE),
    ROW(CUDA_ERROR_LOSSY_QUERY),
    ROW(CUDA_ERROR_NOT_FOUND),
    ROW(CUDA_ERROR_NOT_READY),
    ROW(CUDA_ERROR_ILLEGAL_ADDRESS),
    ROW(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES),
    ROW(CUDA_ERROR_LAUNCH_TIMEOUT),
    ROW(CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING),
    ROW(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED),
    ROW(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED),
    ROW(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE),
    ROW(CUDA_ERROR_CONTEXT_IS_DESTROYED),
    ROW(CUDA_ERROR_ASSERT),
    ROW(CUDA_ERROR_TOO_MANY_PEERS),
    ROW(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED),
    ROW(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED),
    ROW(CUDA_ERROR_HARDWARE_STACK_ERROR),
    ROW(CUDA_ERROR_ILLEGAL_INSTRUCTION),
    ROW(CUDA_ERROR_MISALIGNED_ADDRESS),
    ROW(CUDA_ERROR_INVALID_ADDRESS_SPACE),
    ROW(CUDA_ERROR_INVALID_PC),
    ROW(CUDA_ERROR_LAUNCH_FAILED),
    ROW(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE),
    ROW(CUDA_ERROR_TENSOR_MEMORY_LEAK),
    ROW(CUDA_ERROR_NOT_PERMITTED),
    ROW(CUDA_ERROR_NOT_SUPPORTED),
    ROW(CUDA_ERROR_SYSTEM_NOT_READY),
    ROW(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH),
    ROW(CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE),
    ROW(CUDA_ERROR_MPS_CONNECTION_FAILED),
    ROW(CUDA_ERROR_MPS_RPC_FAILURE),
    ROW(CUDA_ERROR_MPS_SERVER_NOT_READY),
    ROW(CUDA_ERROR_MPS_MAX_CLIENTS_REACHED),
    ROW(CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED),
    ROW(CUDA_ERROR_MPS_CLIENT_TERMINATED),
    ROW(CUDA_ERROR_CDP_NOT_SUPPORTED),
    ROW(CUDA_ERROR_CDP_VERSION_MISMATCH),
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED),
    ROW(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED),
    ROW(CUDA_ERROR_STREAM_CAPTURE_MERGE),
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED),
    ROW(CUDA_ERROR_STREAM_CAPTURE_UNJOINED),
    ROW(CUDA_ERROR_STREAM_CAPTURE_ISOLATION),
    ROW(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT),
    ROW(CUDA_ERROR_CAPTURED_EVENT),
    ROW(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD),
    ROW(CUDA_ERROR_TIMEOUT),
    ROW(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE),
    ROW(CUDA_ERROR_EXTERNAL_DEVICE),
    ROW(CUDA_ERROR_INVALID_CLUSTER_SIZE),
    ROW(CUDA_ERROR_FUNCTION_NOT_LOADED),
    ROW(CUDA_ERROR_INVALID_RESOURCE_TYPE),
    ROW(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION),
    ROW(CUDA_ERROR_KEY_ROTATION),
    ROW(CUDA_ERROR_UNKNOWN),
};

#define ERRORS (sizeof errors / sizeof errors[0])

static size_t error_find(CUresult code)
{
    size_t i = 0;

    while (i < ERRORS && errors[i].code != code)
        i++;
    return i;
}

const char *sim_error_name(CUresult result)
{
    const size_t i = error_find(result);

    return i < ERRORS ? errors[i].name : "unknown error";
}

static const char *error_text(size_t i)
{
    const char *words = errors[i].name + strlen("CUDA_");
    char *text = errors[i].text;

    if (strncmp(words, "ERROR_", 6) == 0)
        words += 6;
    if (!*text)
        for (size_t at = 0; words[at] && at < sizeof errors[i].text - 1; at++) {
            const char letter = words[at];
            text[at] = letter;
            if (letter == '_')
                text[at] = ' ';
            else if (letter >= 'A' && letter <= 'Z')
                text[at] = "abcdefghijklmnopqrstuvwxyz"[letter - 'A'];
        }
    return errors[i].code == CUDA_SUCCESS ? "no error" : text;
}

static CUresult name_get(CUresult error, const char **name, bool text)
{
    const size_t i = error_find(error);

    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = NULL;
    if (i == ERRORS)
        return CUDA_ERROR_INVALID_VALUE;
    *name = text ? error_text(i) : errors[i].name;
    return CUDA_SUCCESS;
}

SIM_API(cuGetErrorName, (CUresult error, const char **name), SIM_ANYTIME,
        name_get(error, name, false))
SIM_API(cuGetErrorString, (CUresult error, const char **text), SIM_ANYTIME,
        name_get(error, text, true))

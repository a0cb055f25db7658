/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc_pair.c: `ipc pair`: a parent that exports and a child that opens. One thread each.
 */
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/ipc.h"

static void require_result(bool good, const char *what, CUresult result)
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

int ipc_pair_child(int in, int out, size_t bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    size_t bad;
    CUresult result = ipc_begin_driver(0);

    require_result(result == CUDA_SUCCESS, "child: begin", result);
    require_result(read_all(in, &handle, sizeof handle), "child: no handle", result);
    result = ipc_open_handle(&handle, 1, &address);
    require_result(result == CUDA_SUCCESS, "child: open", result);
    result = ipc_check_bytes(address, bytes, 1, &bad);
    require_result(result == CUDA_SUCCESS && bad == SIZE_MAX, "child: bytes", result);
    result = ipc_fill_bytes(address, bytes, 2);
    require_result(result == CUDA_SUCCESS, "child: fill", result);
    result = ipc_close_handle(address);
    require_result(result == CUDA_SUCCESS, "child: close", result);
    require_result(write(out, "", 1) == 1, "child: write", result);
    return 0;
}

static int export_and_check(int in, int out, size_t bytes)
{
    CUipcMemHandle handle;
    CUdeviceptr address = 0;
    size_t bad;
    char byte;
    CUresult result = ipc_begin_driver(0);

    require_result(result == CUDA_SUCCESS, "begin", result);
    result = allocate(&address, bytes);
    require_result(result == CUDA_SUCCESS, "alloc", result);
    result = ipc_fill_bytes(address, bytes, 1);
    require_result(result == CUDA_SUCCESS, "fill", result);
    result = ipc_get_handle(address, &handle);
    require_result(result == CUDA_SUCCESS, "handle", result);
    require_result(write(out, &handle, sizeof handle) == sizeof handle, "write", result);
    require_result(read_all(in, &byte, 1), "the child has failed", result);
    result = ipc_check_bytes(address, bytes, 2, &bad);
    require_result(result == CUDA_SUCCESS && bad == SIZE_MAX, "bytes", result);
    result = release(address);
    require_result(result == CUDA_SUCCESS, "free", result);
    return 0;
}

int ipc_pair(char **argv, bool spawn)
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
            exit(ipc_pair_child(there[0], back[1], bytes));
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

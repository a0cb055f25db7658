/* SPDX-License-Identifier: Apache-2.0
 *
 * sharekit.c: owns what the tests of shared memory have in common (sharekit.h).
 * Invariants: none of its own. Threads: one.
 */
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "tests/simcuda/sharekit.h"

struct kit_turn share_ready, share_go;
int share_line[2];

size_t share_memory_left(void)
{
    size_t left = 0, total = 0;

    OK(cuMemGetInfo(&left, &total));
    return left;
}

void share_start(void)
{
    kit_turn_init(&share_ready);
    kit_turn_init(&share_go);
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, share_line) == 0);
}

union control {
    struct cmsghdr header;
    char space[CMSG_SPACE(sizeof(int))];
};

void share_send(int fd)
{
    union control control = {.header = {.cmsg_len = CMSG_LEN(sizeof fd),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS}};
    struct iovec byte = {.iov_base = &(char){'x'}, .iov_len = 1};
    const struct msghdr message = {.msg_iov = &byte,
                                   .msg_iovlen = 1,
                                   .msg_control = &control,
                                   .msg_controllen = sizeof control};

    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    CHECK(sendmsg(share_line[0], &message, MSG_DONTWAIT) == 1 || errno == EAGAIN); /* full */
    close(fd);
}

int share_receive(int flags)
{
    union control control;
    struct iovec byte = {.iov_base = &(char){0}, .iov_len = 1};
    struct msghdr message = {.msg_iov = &byte,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    int fd = -1;

    if (recvmsg(share_line[1], &message, flags | MSG_CMSG_CLOEXEC) != 1)
        return -1;
    CHECK(message.msg_controllen == sizeof control);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

CUmemGenericAllocationHandle share_make(size_t size)
{
    CUmemAllocationProp prop = kit_prop;
    CUmemGenericAllocationHandle handle = 0;

    prop.requestedHandleTypes = SHARE_DESCRIPTOR;
    OK(cuMemCreate(&handle, size, &prop, 0));
    return handle;
}

int share_export(CUmemGenericAllocationHandle handle)
{
    int fd = -1;

    OK(cuMemExportToShareableHandle(&fd, handle, SHARE_DESCRIPTOR, 0));
    return fd;
}

CUmemGenericAllocationHandle share_import(int fd)
{
    CUmemGenericAllocationHandle handle = 0;

    OK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, SHARE_DESCRIPTOR));
    return handle;
}

CUdeviceptr share_map(CUmemGenericAllocationHandle handle, size_t size)
{
    CUdeviceptr address = 0;

    OK(cuMemAddressReserve(&address, size, 0, 0, 0));
    OK(cuMemMap(address, size, 0, handle, 0));
    OK(cuMemSetAccess(address, size, &kit_access, 1));
    return address;
}

bool share_all_bytes(CUdeviceptr address, size_t size, unsigned char value)
{
    unsigned char *seen = malloc(size);

    CHECK(seen != NULL);
    OK(cuMemcpyDtoH(seen, address, size));
    const bool equal = seen[0] == value && memcmp(seen, seen + 1, size - 1) == 0;
    free(seen);
    return equal;
}

unsigned share_files(void)
{
    const char *path = getenv("SIMCUDA_CARD");
    DIR *folder = path ? opendir(path) : NULL;
    unsigned count = 0;

    CHECK(folder != NULL);
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the stream is ours alone
    for (const struct dirent *file; (file = readdir(folder)) != NULL;)
        count += strncmp(file->d_name, "memory-", 7) == 0;
    closedir(folder);
    return count;
}

void share_kill(int pid)
{
    siginfo_t gone;

    CHECK(kill(pid, SIGKILL) == 0);
    CHECK(waitid(P_PID, (id_t)pid, &gone, WEXITED) == 0);
}

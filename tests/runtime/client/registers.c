/* SPDX-License-Identifier: Apache-2.0
 *
 * registers.c: registers host memory with the driver, on the simulated card.
 *
 *   registers FILE COUNT
 *
 * First COUNT pages of its own, one by one; then it writes a line with the bytes that its thread
 * has read meanwhile. Then a page of FILE, which it maps as memory that processes share; as soon as
 * that is registered it writes "registered". Then it waits to be killed.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cuda.h>

#include "tests/runtime/check.h"

#define PAGE 4096

static unsigned long long bytes_read(void)
{
    static const char name[] = "rchar: ";
    FILE *file = fopen("/proc/thread-self/io", "re");
    char line[64];

    CHECK(file != NULL && fgets(line, sizeof line, file) != NULL);
    fclose(file);
    CHECK(strncmp(line, name, strlen(name)) == 0);
    return strtoull(line + strlen(name), NULL, 10);
}

static void *map_page(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    void *page;

    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0);
    page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(page != MAP_FAILED);
    close(fd);
    memset(page, 1, PAGE);
    return page;
}

int main(int argc, char **argv)
{
    const size_t count = argc == 3 ? (size_t)strtoul(argv[2], NULL, 10) : 0;
    unsigned long long before;
    CUdeviceptr memory;
    CUcontext context;
    char *own;

    if (argc != 3)
        return 2;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc(&memory, 1 << 20));
    OK(cuMemsetD8(memory, 1, 1 << 20)); /* the daemon has answered */
    own = mmap(NULL, (count + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
               -1, 0);
    CHECK(own != MAP_FAILED);
    memset(own, 1, (count + 1) * PAGE);
    before = bytes_read();
    for (size_t i = 0; i < count; i++)
        OK(cuMemHostRegister(own + i * PAGE, PAGE, 0));
    printf("%llu\n", bytes_read() - before);
    OK(cuMemHostRegister(map_page(argv[1]), PAGE, 0));
    puts("registered");
    fflush(stdout);
    pause(); /* until it is killed */
    return 0;
}

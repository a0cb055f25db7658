/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_calls.c: the child process that calls NVIDIA's management library, so that a library that
 * hangs or crashes affects nothing else. It owns the library, and only the descriptor of its
 * questions: a process that the kernel does not let go must not keep a pipe or terminal of its
 * starter open. The library is opened when it is needed and never linked: gpusharectl runs on
 * machines without it.
 *
 * Types and numbers are those of NVML's API reference (nvmlDeviceGetUtilizationRates,
 * nvmlDeviceGetProcessUtilization), which keeps them stable.
 */
#include "lockd/ctl/nvml_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define NVML_SUCCESS   0
#define NVML_NOT_FOUND 6
#define NVML_TOO_SMALL 7
#define WINDOW_US      1000000u /* the age of samples that still count */

struct nvml_utilization {
    unsigned gpu, memory; /* per cent of the last sample period in which they were busy */
};

typedef struct nvml_device *nvml_device_handle;

struct nvml_library {
    void *handle;
    int (*init)(void);
    int (*by_uuid)(const char *, nvml_device_handle *);
    int (*by_index)(unsigned, nvml_device_handle *);
    int (*uuid)(nvml_device_handle, char *, unsigned);
    int (*utilization)(nvml_device_handle, struct nvml_utilization *);
    int (*processes)(nvml_device_handle, struct nvml_sample *, unsigned *, unsigned long long);
};

/* Converts without a cast between object and function pointers (POSIX dlsym). */
static bool find_function(void *library, const char *name, void *function)
{
    void *address = dlsym(library, name);

    memcpy(function, &address, sizeof address);
    return address != NULL;
}

static bool open_library(struct nvml_library *nvml)
{
    nvml->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->handle == NULL || !find_function(nvml->handle, "nvmlInit_v2", &nvml->init) ||
        !find_function(nvml->handle, "nvmlDeviceGetHandleByUUID", &nvml->by_uuid) ||
        !find_function(nvml->handle, "nvmlDeviceGetUtilizationRates", &nvml->utilization) ||
        nvml->init() != NVML_SUCCESS)
        return false;
    find_function(nvml->handle, "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index);
    find_function(nvml->handle, "nvmlDeviceGetUUID", &nvml->uuid);
    /* older drivers lack it; then only the devices' values are known */
    find_function(nvml->handle, "nvmlDeviceGetProcessUtilization", &nvml->processes);
    return true;
}

static bool send_all(int fd, const void *bytes, size_t size)
{
    while (size > 0) {
        const ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);

        if (sent <= 0)
            return false;
        bytes = (const char *)bytes + sent;
        size -= (size_t)sent;
    }
    return true;
}

/* The samples of a device's last second, to be freed by the caller. -1: NVML has none. */
static int32_t read_samples(const struct nvml_library *nvml, nvml_device_handle device,
                            struct nvml_sample **samples)
{
    unsigned long long since;
    struct timespec now;
    unsigned count = 0, place;
    int code;

    if (nvml->processes == NULL)
        return -1;
    clock_gettime(CLOCK_REALTIME, &now);
    since = (unsigned long long)now.tv_sec * 1000000u +
            (unsigned long long)now.tv_nsec / 1000u - WINDOW_US;
    code = nvml->processes(device, NULL, &count, since); /* asks for the number of samples */
    if (code == NVML_NOT_FOUND || (code == NVML_SUCCESS && count == 0))
        return 0;
    if (code != NVML_TOO_SMALL && code != NVML_SUCCESS)
        return -1;
    place = count = count > NVML_SAMPLES_MAX ? NVML_SAMPLES_MAX : count;
    *samples = calloc(place, sizeof **samples);
    if (*samples == NULL)
        return -1;
    code = nvml->processes(device, *samples, &count, since);
    if (code == NVML_NOT_FOUND)
        return 0;
    return code == NVML_SUCCESS && count <= place ? (int32_t)count : -1;
}

static void tell_device(const struct nvml_library *nvml, FILE *out, const char *uuid)
{
    struct nvml_device_answer answer = {.busy = -1, .samples = -1};
    struct nvml_sample *samples = NULL;
    struct nvml_utilization rates;
    nvml_device_handle handle = NULL;

    if (nvml->by_uuid(uuid, &handle) == NVML_SUCCESS) {
        if (nvml->utilization(handle, &rates) == NVML_SUCCESS && rates.gpu <= 100)
            answer.busy = (int32_t)rates.gpu;
        answer.samples = read_samples(nvml, handle, &samples);
    }
    fwrite(&answer, sizeof answer, 1, out);
    if (answer.samples > 0)
        fwrite(samples, sizeof *samples, (size_t)answer.samples, out);
    free(samples);
}

static void tell_uuid(const struct nvml_library *nvml, FILE *out, unsigned index)
{
    struct nvml_uuid_answer answer = {.found = 0};
    nvml_device_handle device = NULL;

    if (nvml->by_index != NULL && nvml->uuid != NULL &&
        nvml->by_index(index, &device) == NVML_SUCCESS &&
        nvml->uuid(device, answer.uuid, sizeof answer.uuid) == NVML_SUCCESS)
        answer.found = 1;
    fwrite(&answer, sizeof answer, 1, out);
}

/* Sends the answer as a whole, since NVML may hang at any point. */
static bool answer_question(const struct nvml_library *nvml, int fd,
                            const struct nvml_question *question)
{
    char *bytes = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&bytes, &size);
    bool sent;

    if (out == NULL)
        return false;
    if (question->device_count == 0)
        tell_uuid(nvml, out, question->index);
    for (uint32_t i = 0; i < question->device_count; i++)
        tell_device(nvml, out, question->uuid[i]);
    sent = fclose(out) == 0 && send_all(fd, bytes, size);
    free(bytes);
    return sent;
}

/* Gives up everything inherited from its starter: signal handlers, the terminal, and every
 * descriptor but fd. */
static bool leave_starter(int fd)
{
    const int null = open("/dev/null", O_RDWR);
    DIR *folder = opendir("/proc/self/fd");
    const struct rlimit no_core = {0, 0};
    const struct dirent *entry;

    for (int number = 1; number < NSIG; number++)
        signal(number,
               SIG_DFL); /* fails for SIGKILL, SIGSTOP and the signals of the C library */
    setsid();
    setrlimit(RLIMIT_CORE,
              &no_core); /* a crash of the library is expected, and is not worth a core file */
    if (null < 0 || folder == NULL)
        return false;
    for (int standard = STDIN_FILENO; standard <= STDERR_FILENO; standard++)
        dup2(null, standard);
    while ((entry = readdir(folder)) != NULL) {
        const int other = (int)strtol(entry->d_name, NULL, 10);

        if (entry->d_name[0] != '.' && other != dirfd(folder) && other != fd &&
            other > STDERR_FILENO)
            close(other);
    }
    closedir(folder);
    return true;
}

void nvml_child_run(int fd, pid_t starter)
{
    struct nvml_library nvml = {.handle = NULL};
    struct nvml_question question;
    uint32_t works;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter || !leave_starter(fd))
        _exit(1);
    works = open_library(&nvml) ? 1 : 0;
    if (!send_all(fd, &works, sizeof works) || works == 0)
        _exit(0);
    while (recv(fd, &question, sizeof question, MSG_WAITALL) == (ssize_t)sizeof question &&
           answer_question(&nvml, fd, &question))
        ;
    _exit(0); /* the kernel releases the library's resources; its own shutdown could hang */
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_calls.c: the child process that calls NVIDIA's management library, so that a library
 * that hangs or crashes affects nothing else. The child owns the library, and only the
 * descriptor of its questions: a process that the kernel does not let go must not keep a pipe
 * or terminal of its starter open. The library is opened when it is needed and never linked:
 * the tools run on machines without it.
 *
 * Types and numbers are those of NVML's API reference, which keeps them stable.
 */
#include "lockd/nvml/nvml_calls.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
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
#define RUNNING_MAX    2048u    /* processes of one call */
#define SAMPLES_MAX    4096u
#define PERCENT_MAX    100u
#define HOT_MAX        200u  /* degrees Celsius; a larger value is an error of the library */
#define WATTS_MAX      9999u /* likewise */

struct nvml_utilization {
    unsigned gpu, memory; /* per cent of the last sample period in which they were busy */
};

typedef struct nvml_device *nvml_device_handle;

struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml_sample { /* of one process, as NVML lays it out */
    unsigned pid;
    unsigned long long time_us; /* since 1970 */
    unsigned gpu, memory, encoder, decoder;
};

struct nvml_running { /* nvmlProcessInfo_t of version 2 and 3 */
    unsigned pid;
    unsigned long long memory; /* all bits: not known */
    unsigned gpu_instance, compute_instance;
};

typedef int nvml_running_call(nvml_device_handle, unsigned *, struct nvml_running *);

struct nvml_library {
    int (*init)(void);
    int (*count)(unsigned *);
    int (*by_index)(unsigned, nvml_device_handle *);
    int (*uuid)(nvml_device_handle, char *, unsigned);
    /* NULL: this version of the library lacks it */
    int (*name)(nvml_device_handle, char *, unsigned);
    int (*utilization)(nvml_device_handle, struct nvml_utilization *);
    int (*memory)(nvml_device_handle, struct nvml_memory *);
    int (*temperature)(nvml_device_handle, int, unsigned *);
    int (*power)(nvml_device_handle, unsigned *);
    int (*power_limit)(nvml_device_handle, unsigned *);
    int (*samples)(nvml_device_handle, struct nvml_sample *, unsigned *, unsigned long long);
    nvml_running_call *running[2]; /* processes that compute, that draw */
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
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

    if (library == NULL || !find_function(library, "nvmlInit_v2", &nvml->init) ||
        !find_function(library, "nvmlDeviceGetCount_v2", &nvml->count) ||
        !find_function(library, "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index) ||
        !find_function(library, "nvmlDeviceGetUUID", &nvml->uuid) ||
        nvml->init() != NVML_SUCCESS)
        return false;
    find_function(library, "nvmlDeviceGetName", &nvml->name);
    find_function(library, "nvmlDeviceGetUtilizationRates", &nvml->utilization);
    find_function(library, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    find_function(library, "nvmlDeviceGetTemperature", &nvml->temperature);
    find_function(library, "nvmlDeviceGetPowerUsage", &nvml->power);
    find_function(library, "nvmlDeviceGetEnforcedPowerLimit", &nvml->power_limit);
    find_function(library, "nvmlDeviceGetProcessUtilization", &nvml->samples);
    if (!find_function(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->running[0]))
        find_function(library, "nvmlDeviceGetComputeRunningProcesses_v2", &nvml->running[0]);
    if (!find_function(library, "nvmlDeviceGetGraphicsRunningProcesses_v3", &nvml->running[1]))
        find_function(library, "nvmlDeviceGetGraphicsRunningProcesses_v2", &nvml->running[1]);
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

/* The child's answer, while it is made. */
struct telling {
    struct nvml_gpu gpus[NVML_GPUS_MAX];
    struct nvml_process processes[NVML_PROCESSES_MAX];
    struct nvml_answer counts;
};

/* The place of that process on that GPU, which is made if need be. NULL: the table is full. */
static struct nvml_process *place_of(struct telling *telling, uint32_t gpu, unsigned pid)
{
    struct nvml_process *place = telling->processes;
    uint32_t *count = &telling->counts.process_count;

    if (pid == 0 || pid > INT32_MAX)
        return NULL;
    for (uint32_t i = 0; i < *count; i++, place++) {
        if (place->gpu == gpu && place->pid == (int32_t)pid)
            return place;
    }
    if (*count == NVML_PROCESSES_MAX)
        return NULL;
    ++*count;
    *place = (struct nvml_process){
        .gpu = gpu, .pid = (int32_t)pid, .busy = NVML_UNKNOWN, .memory = NVML_BYTES_UNKNOWN};
    return place;
}

/* Adds the processes that one call lists. False: it cannot. */
static bool add_running(struct telling *telling, uint32_t gpu, nvml_device_handle device,
                        nvml_running_call *call)
{
    static struct nvml_running running[RUNNING_MAX];
    unsigned count = RUNNING_MAX;
    int code;

    if (call == NULL)
        return false;
    code = call(device, &count, running);
    if ((code != NVML_SUCCESS && code != NVML_TOO_SMALL) || count > RUNNING_MAX)
        return false;
    for (unsigned i = 0; code == NVML_SUCCESS && i < count; i++) {
        struct nvml_process *place = place_of(telling, gpu, running[i].pid);
        const uint64_t memory = running[i].memory;

        if (place == NULL)
            continue;
        place->listed = 1;
        if (place->memory ==
                NVML_BYTES_UNKNOWN || /* a process that computes and draws is listed twice */
            (memory != NVML_BYTES_UNKNOWN && memory > place->memory))
            place->memory = memory;
    }
    return code == NVML_SUCCESS;
}

/* Reads the samples of a device's last second. -1: NVML has none; else their number. */
static int read_samples(const struct nvml_library *nvml, nvml_device_handle device,
                        struct nvml_sample *samples)
{
    unsigned long long since;
    struct timespec now;
    unsigned count = 0;
    int code;

    if (nvml->samples == NULL)
        return -1;
    clock_gettime(CLOCK_REALTIME, &now);
    since = (unsigned long long)now.tv_sec * 1000000u +
            (unsigned long long)now.tv_nsec / 1000u - WINDOW_US;
    code = nvml->samples(device, NULL, &count, since); /* asks for the number of samples */
    if (code == NVML_NOT_FOUND || (code == NVML_SUCCESS && count == 0))
        return 0;
    if ((code != NVML_TOO_SMALL && code != NVML_SUCCESS))
        return -1;
    count = count > SAMPLES_MAX ? SAMPLES_MAX : count;
    code = nvml->samples(device, samples, &count, since);
    if (code == NVML_NOT_FOUND)
        return 0;
    return code == NVML_SUCCESS && count <= SAMPLES_MAX ? (int)count : -1;
}

/* The newest sample of each process counts; a process without a sample is idle. */
static bool add_samples(struct telling *telling, uint32_t gpu, const struct nvml_library *nvml,
                        nvml_device_handle device)
{
    static struct nvml_sample samples[SAMPLES_MAX];
    const int count = read_samples(nvml, device, samples);

    for (int i = 0; i < count; i++) {
        struct nvml_process *place;
        bool newest = samples[i].gpu <= PERCENT_MAX;

        for (int j = 0; newest && j < count; j++)
            newest = samples[j].pid != samples[i].pid ||
                     samples[j].time_us <= samples[i].time_us || samples[j].gpu > PERCENT_MAX;
        place = newest ? place_of(telling, gpu, samples[i].pid) : NULL;
        if (place != NULL)
            place->busy = (int32_t)samples[i].gpu;
    }
    for (uint32_t i = 0; count >= 0 && i < telling->counts.process_count; i++) {
        if (telling->processes[i].gpu == gpu && telling->processes[i].busy == NVML_UNKNOWN)
            telling->processes[i].busy = 0;
    }
    return count >= 0;
}

/* A text of the library: printable characters that end, or "". */
static void keep_text(char *text, size_t size)
{
    size_t length = 0;

    while (length < size && text[length] >= ' ' && text[length] <= '~')
        length++;
    if (length == size || text[length] != '\0')
        text[0] = '\0';
}

static int32_t small_number(unsigned value, unsigned most)
{
    return value <= most ? (int32_t)value : NVML_UNKNOWN;
}

static void tell_gpu(const struct nvml_library *nvml, struct telling *telling, unsigned index)
{
    struct nvml_gpu *gpu = &telling->gpus[telling->counts.gpu_count];
    struct nvml_utilization rates = {0};
    struct nvml_memory memory = {0};
    nvml_device_handle device = NULL;
    unsigned value = 0;
    uint32_t place;

    *gpu = (struct nvml_gpu){.index = index, .total = NVML_BYTES_UNKNOWN};
    if (nvml->by_index(index, &device) != NVML_SUCCESS ||
        nvml->uuid(device, gpu->uuid, sizeof gpu->uuid) != NVML_SUCCESS)
        return; /* a lost GPU, or a GPU that this user may not see */
    keep_text(gpu->uuid, sizeof gpu->uuid);
    if (gpu->uuid[0] == '\0')
        return;
    place = telling->counts.gpu_count++;
    if (nvml->name == NULL || nvml->name(device, gpu->name, sizeof gpu->name) != NVML_SUCCESS)
        gpu->name[0] = '\0';
    keep_text(gpu->name, sizeof gpu->name);
    gpu->busy = NVML_UNKNOWN;
    if (nvml->utilization != NULL && nvml->utilization(device, &rates) == NVML_SUCCESS)
        gpu->busy = small_number(rates.gpu, PERCENT_MAX);
    gpu->used = NVML_BYTES_UNKNOWN;
    if (nvml->memory != NULL && nvml->memory(device, &memory) == NVML_SUCCESS) {
        gpu->total = memory.total;
        gpu->used = memory.used;
    }
    gpu->temperature = gpu->power = gpu->power_limit = NVML_UNKNOWN;
    if (nvml->temperature != NULL && nvml->temperature(device, 0, &value) == NVML_SUCCESS)
        gpu->temperature = small_number(value, HOT_MAX);
    if (nvml->power != NULL && nvml->power(device, &value) == NVML_SUCCESS)
        gpu->power = small_number(value / 1000, WATTS_MAX);
    if (nvml->power_limit != NULL && nvml->power_limit(device, &value) == NVML_SUCCESS)
        gpu->power_limit = small_number(value / 1000, WATTS_MAX);
    gpu->lists = add_running(telling, place, device, nvml->running[0]);
    add_running(telling, place, device, nvml->running[1]);
    gpu->samples = add_samples(telling, place, nvml, device);
}

/* Sends the answer as a whole, since NVML may hang at any point. */
static bool answer_question(const struct nvml_library *nvml, int fd)
{
    static struct telling telling; /* too large for the stack */
    unsigned count = 0;

    telling.counts = (struct nvml_answer){0};
    if (nvml->count(&count) != NVML_SUCCESS)
        count = 0;
    for (unsigned i = 0; i < count && i < NVML_GPUS_MAX; i++)
        tell_gpu(nvml, &telling, i);
    return send_all(fd, &telling.counts, sizeof telling.counts) &&
           send_all(fd, telling.gpus, telling.counts.gpu_count * sizeof *telling.gpus) &&
           send_all(fd, telling.processes,
                    telling.counts.process_count * sizeof *telling.processes);
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
    struct nvml_library nvml = {0};
    char question;
    uint32_t works;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != starter || !leave_starter(fd))
        _exit(1);
    works = open_library(&nvml) ? 1 : 0;
    if (!send_all(fd, &works, sizeof works) || works == 0)
        _exit(0);
    while (recv(fd, &question, sizeof question, 0) == 1 && answer_question(&nvml, fd))
        ;
    _exit(0); /* the kernel releases the library's resources; its own shutdown could hang */
}

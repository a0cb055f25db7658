/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvml.c: a libnvidia-ml.so.1 for tests of gpusharectl. FAKE_NVML says what it answers:
 * "DEVICE:BUSY[,PID:BUSY...]": a device's UUID ("*": any), per cent of it, then of processes on
 * it. Without the variable there is no driver. FAKE_NVML_OLD: a driver that tells nothing of processes.
 *
 * FAKE_NVML_FAULT: "hang", "crash", "exit" or "late:FILE" (until FILE exists), in nvmlInit_v2; "hang-asked",
 * "crash-asked", "late-asked:FILE" in the question about a device; "garbage": every answer has numbers out of all bounds.
 * FAKE_NVML_STARTED: a file to which each process that loads it adds its number, as a line.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NVML_SUCCESS       0
#define NVML_NOT_SUPPORTED 3
#define NVML_NOT_FOUND     6
#define NVML_TOO_SMALL     7
#define NVML_NO_DRIVER     9

struct utilization {
    unsigned gpu, memory;
};

struct sample {
    unsigned pid;
    unsigned long long time_us;
    unsigned gpu, memory, encoder, decoder;
};

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size);

/* Not time(), which may be behind by a tick, and so by a second. */
static unsigned long long now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (unsigned long long)now.tv_sec * 1000000u + (unsigned long long)now.tv_nsec / 1000u;
}

static int fault_is(const char *name)
{
    const char *fault = getenv("FAKE_NVML_FAULT");

    return fault != NULL && strncmp(fault, name, strlen(name)) == 0 &&
           (fault[strlen(name)] == '\0' || fault[strlen(name)] == ':');
}

static void do_fault(const char *hang, const char *crash, const char *late)
{
    puts("the library prints"); /* which nobody may see */
    fflush(stdout);
    while (fault_is(hang))
        pause();
    if (fault_is(crash))
        raise(SIGSEGV);
    while (fault_is(late) && access(strchr(getenv("FAKE_NVML_FAULT"), ':') + 1, F_OK) != 0)
        usleep(10000);
}

/* UUID:BUSY,PID:BUSY,... */
static const char *read_told(void)
{
    const char *text = getenv("FAKE_NVML");

    return text != NULL ? text : "";
}

int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates);
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long since_us);

static char card; /* its address is the handle of the one device */

int nvmlInit_v2(void)
{
    const char *started = getenv("FAKE_NVML_STARTED");
    FILE *file = started != NULL ? fopen(started, "ae") : NULL;

    if (file != NULL) {
        fprintf(file, "%d\n", (int)getpid());
        fclose(file);
    }
    do_fault("hang", "crash", "late");
    if (fault_is("exit"))
        exit(3);
    return getenv("FAKE_NVML") != NULL ? NVML_SUCCESS : NVML_NO_DRIVER;
}

int nvmlShutdown(void)
{
    return NVML_SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = read_told()[0] != '\0';
    return NVML_SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates)
{
    const char *at = strchr(read_told(), ':');

    if (device != &card || at == NULL)
        return NVML_NOT_FOUND;
    do_fault("hang-asked", "crash-asked", "late-asked");
    if (fault_is("garbage")) {
        memset(rates, 0xfe, sizeof *rates);
        return NVML_SUCCESS;
    }
    rates->gpu = (unsigned)strtoul(at + 1, NULL, 10);
    rates->memory = 1;
    return NVML_SUCCESS;
}

/* As the driver: each process with several samples, the newest not the last; none of idle ones. */
int nvmlDeviceGetProcessUtilization(void *device, struct sample *samples, unsigned *count,
                                    unsigned long long since_us)
{
    const char *at = read_told();
    unsigned wanted = 0, place = *count;

    if (getenv("FAKE_NVML_OLD") != NULL)
        return NVML_NOT_SUPPORTED;
    if (fault_is("garbage")) {
        if (samples != NULL)
            memset(samples, 0xfe, *count * sizeof *samples);
        *count = samples != NULL ? 0xfffffffe : 7;
        return NVML_SUCCESS;
    }
    if (device != &card || since_us > now_us())
        return NVML_NOT_FOUND;
    for (const char *each = at; (each = strchr(each, ',')) != NULL; each++)
        wanted += 2;
    *count = wanted;
    if (wanted == 0)
        return NVML_NOT_FOUND;
    if (samples == NULL || place < wanted)
        return NVML_TOO_SMALL;
    for (wanted = 0; (at = strchr(at, ',')) != NULL; at++) {
        char *end;
        const unsigned pid = (unsigned)strtoul(at + 1, &end, 10),
                       busy = *end == ':' ? (unsigned)strtoul(end + 1, NULL, 10) : 0;

        samples[wanted++] = (struct sample){pid, since_us + 20, busy, 0, 0, 0};
        samples[wanted++] = (struct sample){pid, since_us + 10, 99, 0, 0, 0};
    }
    return NVML_SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &card;
    return index == 0 && read_told()[0] != '\0' ? NVML_SUCCESS : NVML_NOT_FOUND;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned size)
{
    if (device != &card)
        return NVML_NOT_FOUND;
    do_fault("hang-asked", "crash-asked", "late-asked");
    if (fault_is("garbage"))
        memset(uuid, 0xfe, size); /* without an end */
    else
        snprintf(uuid, size, "%.*s", (int)strcspn(read_told(), ":"), read_told());
    return NVML_SUCCESS;
}

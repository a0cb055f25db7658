/* SPDX-License-Identifier: Apache-2.0
 *
 * ipc_bench.c: how long CUDA IPC takes through libgpushare, against the same driver's own. Two
 * processes: one exports memory, the other one opens it, works on it and closes it. Both sides
 * run in the same two processes, in turns; medians count.
 *
 *   export     a second cuIpcGetMemHandle of the same memory
 *   first      the first open of new memory, and its close
 *   again      open and close of memory that was opened and closed just before, as PyTorch
 *              does with its segments
 *
 *   ipc_bench [--rounds N] [--size SIZE] [--json FILE] [--limit US] [--lockd PATH]
 *
 * --limit: exit 1 if an open and close "again" takes so much longer than the driver's own
 * (microseconds). It starts a daemon of its own. The driver is whatever libcuda.so.1 is found.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cudaTypedefs.h>

#include "bench/median.h"
#include "common/size.h"
#include "runtime/base/libc_symbols.h"

#define ROUNDS_MOST 1000
#define AGAIN       20 /* opens and closes in a round */
#define WORK        4096

struct options {
    unsigned rounds;
    uint64_t bytes;
    const char *json, *lockd;
    double limit;
};

enum { OWN, ROUTED, SIDES };

static struct side {
    PFN_cuMemAlloc_v3020 alloc;
    PFN_cuMemFree_v3020 release;
    PFN_cuIpcGetMemHandle_v4010 handle;
    PFN_cuIpcOpenMemHandle_v11000 open;
    PFN_cuIpcCloseMemHandle_v4010 close;
    PFN_cuMemsetD8_v3020 fill;
    PFN_cuCtxSynchronize_v2000 wait;
} sides[SIDES];

/* What the opener asks the exporter for: new memory in place of the last, or another handle. */
struct order {
    unsigned side;
    bool fresh;
};

struct answer {
    CUipcMemHandle handle;
    double took;
};

struct sums {
    double samples[ROUNDS_MOST * AGAIN];
    unsigned count;
};

static struct sums exports[SIDES], opens[2][SIDES], closes[2][SIDES]; /* first, again */
static char card[64];
static int driver_version;

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void require_good(bool good, const char *what, CUresult result)
{
    if (good)
        return;
    fprintf(stderr, "ipc_bench: %s: CUresult %d\n", what, (int)result);
    exit(1);
}

static void add_sample(struct sums *sums, double value)
{
    if (sums->count < sizeof sums->samples / sizeof sums->samples[0])
        sums->samples[sums->count++] = value;
}

/* --- the card --- */

/* The usual way of a driver program, so that libgpushare's door is the one that answers; own:
 * libc's dlsym, which finds the driver's own functions. */
static void find_functions(void *driver, struct side *side, gs_dlsym_fn *find)
{
    side->alloc = (PFN_cuMemAlloc_v3020)find(driver, "cuMemAlloc_v2");
    side->release = (PFN_cuMemFree_v3020)find(driver, "cuMemFree_v2");
    side->handle = (PFN_cuIpcGetMemHandle_v4010)find(driver, "cuIpcGetMemHandle");
    side->open = (PFN_cuIpcOpenMemHandle_v11000)find(driver, "cuIpcOpenMemHandle_v2");
    side->close = (PFN_cuIpcCloseMemHandle_v4010)find(driver, "cuIpcCloseMemHandle");
    side->fill = (PFN_cuMemsetD8_v3020)find(driver, "cuMemsetD8_v2");
    side->wait = (PFN_cuCtxSynchronize_v2000)find(driver, "cuCtxSynchronize");
}

static void begin_card(void *driver)
{
    PFN_cuInit_v2000 init = (PFN_cuInit_v2000)dlsym(driver, "cuInit");
    PFN_cuDevicePrimaryCtxRetain_v7000 retain =
        (PFN_cuDevicePrimaryCtxRetain_v7000)dlsym(driver, "cuDevicePrimaryCtxRetain");
    PFN_cuCtxSetCurrent_v4000 set_current =
        (PFN_cuCtxSetCurrent_v4000)dlsym(driver, "cuCtxSetCurrent");
    PFN_cuDeviceGetName_v2000 name =
        (PFN_cuDeviceGetName_v2000)dlsym(driver, "cuDeviceGetName");
    PFN_cuDriverGetVersion_v2020 version =
        (PFN_cuDriverGetVersion_v2020)dlsym(driver, "cuDriverGetVersion");
    CUcontext context;
    CUresult result = init(0);

    if (result == CUDA_SUCCESS)
        result = retain(&context, 0);
    if (result == CUDA_SUCCESS)
        result = set_current(context);
    if (result == CUDA_SUCCESS)
        result = name(card, sizeof card, 0);
    if (result == CUDA_SUCCESS)
        result = version(&driver_version);
    require_good(result == CUDA_SUCCESS, "no context", result);
    gs_libc_symbols_init();
    find_functions(driver, &sides[OWN], gs_libc_dlsym);
    find_functions(driver, &sides[ROUTED], dlsym);
    if (sides[OWN].open == sides[ROUTED].open) {
        fprintf(stderr, "ipc_bench: not routed: libgpushare.so.1 is not in front\n");
        exit(1);
    }
}

/* --- the exporter --- */

static bool read_all(int fd, void *to, size_t bytes)
{
    return read(fd, to, bytes) == (ssize_t)bytes; /* small: it comes as a whole */
}

static int export_memory(void *driver, uint64_t bytes, int in, int out)
{
    CUdeviceptr memory[SIDES] = {0, 0};
    struct order order;

    begin_card(driver);
    while (read_all(in, &order, sizeof order)) {
        const struct side *side = &sides[order.side];
        CUdeviceptr *piece = &memory[order.side];
        CUresult result = CUDA_SUCCESS;
        struct answer answer;
        double start;

        if (order.fresh && *piece != 0)
            result = side->release(*piece);
        if (order.fresh && result == CUDA_SUCCESS)
            result = side->alloc(piece, bytes);
        if (order.fresh && result == CUDA_SUCCESS)
            result = side->fill(*piece, 1, bytes);
        if (result == CUDA_SUCCESS)
            result = side->wait();
        require_good(result == CUDA_SUCCESS, "exporter", result);
        start = now_us();
        result = side->handle(&answer.handle, *piece);
        answer.took = now_us() - start;
        require_good(result == CUDA_SUCCESS, "cuIpcGetMemHandle", result);
        if (write(out, &answer, sizeof answer) != sizeof answer)
            return 1;
    }
    return 0;
}

/* --- the opener --- */

static struct answer ask_exporter(int in, int out, unsigned side, bool fresh)
{
    const struct order order = {side, fresh};
    struct answer answer;

    require_good(write(out, &order, sizeof order) == sizeof order &&
                     read_all(in, &answer, sizeof answer),
                 "the exporter has ended", CUDA_SUCCESS);
    return answer;
}

static void open_and_close(const struct side *side, const CUipcMemHandle *handle,
                           struct sums *open, struct sums *closed)
{
    CUdeviceptr address;
    double start = now_us();
    CUresult result = side->open(&address, *handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);

    add_sample(open, now_us() - start);
    require_good(result == CUDA_SUCCESS, "cuIpcOpenMemHandle", result);
    result = side->fill(address, 2, WORK);
    if (result == CUDA_SUCCESS)
        result = side->wait();
    require_good(result == CUDA_SUCCESS, "work on open memory", result);
    start = now_us();
    result = side->close(address);
    add_sample(closed, now_us() - start);
    require_good(result == CUDA_SUCCESS, "cuIpcCloseMemHandle", result);
}

static void measure_round(unsigned side, int in, int out)
{
    struct answer answer = ask_exporter(in, out, side, true);

    open_and_close(&sides[side], &answer.handle, &opens[0][side], &closes[0][side]);
    answer = ask_exporter(in, out, side, false);
    add_sample(&exports[side], answer.took);
    for (unsigned i = 0; i < AGAIN; i++)
        open_and_close(&sides[side], &answer.handle, &opens[1][side], &closes[1][side]);
}

/* The first round is for warming up. */
static void measure_all(unsigned rounds, int in, int out)
{
    for (unsigned round = 0; round <= rounds; round++) {
        for (unsigned i = 0; i < SIDES; i++)
            measure_round((i + round) % SIDES, in, out);
        for (unsigned side = 0; round == 0 && side < SIDES; side++) {
            exports[side].count = 0;
            for (unsigned way = 0; way < 2; way++)
                opens[way][side].count = closes[way][side].count = 0;
        }
    }
}

/* --- results --- */

struct row {
    const char *what;
    double own, routed; /* microseconds */
};

static struct row make_row(const char *what, struct sums of[SIDES])
{
    return (struct row){what, median_of(of[OWN].samples, of[OWN].count),
                        median_of(of[ROUTED].samples, of[ROUTED].count)};
}

static int write_json(const struct options *options, const struct row *rows, unsigned count)
{
    const time_t now = time(NULL);
    char date[16];
    FILE *file;

    if (options->json == NULL)
        return 0;
    file = fopen(options->json, "w");
    if (file == NULL) {
        perror(options->json);
        return -1;
    }
    strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
    fprintf(file,
            "{\"benchmark\": \"ipc\", \"date\": \"%s\", \"card\": \"%s\", \"driver\": %d, "
            "\"bytes\": %llu, \"rounds\": %u, \"rows\": [",
            date, card, driver_version, (unsigned long long)options->bytes, options->rounds);
    for (unsigned i = 0; i < count; i++)
        fprintf(
            file,
            "%s\n  {\"name\": \"%s\", \"value\": %.3f, \"unit\": \"us\", \"ceiling\": %.3f, "
            "\"ratio\": %.4f, \"against\": \"the driver's own\"}",
            i == 0 ? "" : ",", rows[i].what, rows[i].routed, rows[i].own,
            rows[i].routed / rows[i].own);
    fprintf(file, "\n]}\n");
    return fclose(file);
}

static int show_results(const struct options *options)
{
    const struct row rows[] = {
        make_row("export", exports),           make_row("first open", opens[0]),
        make_row("close after it", closes[0]), make_row("open again", opens[1]),
        make_row("close again", closes[1]),
    };
    const unsigned count = sizeof rows / sizeof rows[0];
    const double own = rows[3].own + rows[4].own, routed = rows[3].routed + rows[4].routed;

    for (unsigned i = 0; i < count; i++)
        printf("%-15s %8.2f us, driver's own %8.2f us, ratio %.2f\n", rows[i].what,
               rows[i].routed, rows[i].own, rows[i].routed / rows[i].own);
    printf("open and close again: %.2f us, driver's own %.2f us, %+.2f us, ratio %.2f\n",
           routed, own, routed - own, routed / own);
    if (write_json(options, rows, count) != 0)
        return 1;
    return options->limit > 0 && routed - own > options->limit ? 1 : 0;
}

/* --- processes --- */

static pid_t start_daemon(const struct options *options, const char *folder)
{
    char path[PATH_MAX], lockd[PATH_MAX], socket[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
    const struct timespec pause = {0, 5000000};
    struct stat info;
    pid_t pid;

    path[length > 0 ? length : 0] = '\0';
    if (options->lockd != NULL)
        snprintf(lockd, sizeof lockd, "%s", options->lockd);
    else /* beside it in the build tree */
        snprintf(lockd, sizeof lockd, "%.*s/../lockd/gpushare-lockd",
                 length > 0 ? (int)(strrchr(path, '/') - path) : 0, path);
    snprintf(socket, sizeof socket, "%s/lockd.sock", folder);
    setenv("GPUSHARE_SOCKET", socket, 1);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        execl(lockd, "gpushare-lockd", "--socket", socket, "--log-level", "warning",
              (char *)NULL);
        perror(lockd);
        _exit(127);
    }
    for (unsigned i = 0;
         i < 12000 && stat(socket, &info) != 0 && waitpid(pid, NULL, WNOHANG) == 0; i++)
        nanosleep(&pause, NULL);
    require_good(stat(socket, &info) == 0, "gpushare-lockd did not start", CUDA_SUCCESS);
    return pid;
}

static int measure_both(void *driver, const struct options *options)
{
    int there[2], back[2], status = 1;
    pid_t exporter;

    if (pipe(there) != 0 || pipe(back) != 0 || (exporter = fork()) < 0) {
        perror("ipc_bench");
        return 1;
    }
    if (exporter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(there[1]);
        close(back[0]);
        exit(export_memory(driver, options->bytes, there[0], back[1]));
    }
    close(there[0]);
    close(back[1]);
    begin_card(driver);
    measure_all(options->rounds, back[0], there[1]);
    close(there[1]);
    if (waitpid(exporter, &status, 0) != exporter || status != 0)
        return 1;
    return show_results(options);
}

static int read_options(int argc, char **argv, struct options *options)
{
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (value == NULL)
            return -1;
        if (strcmp(argv[i], "--rounds") == 0)
            options->rounds = (unsigned)strtoul(value, NULL, 10);
        else if (strcmp(argv[i], "--json") == 0)
            options->json = value;
        else if (strcmp(argv[i], "--limit") == 0)
            options->limit = strtod(value, NULL);
        else if (strcmp(argv[i], "--lockd") == 0)
            options->lockd = value;
        else if (strcmp(argv[i], "--size") != 0 || gs_size_parse(value, &options->bytes) != 0)
            return -1;
    }
    return options->rounds > 0 && options->rounds < ROUNDS_MOST ? 0 : -1;
}

int main(int argc, char **argv)
{
    struct options options = {.rounds = 40, .bytes = 2 << 20};
    char folder[] = "/tmp/gpushare-ipc-bench-XXXXXX", socket[PATH_MAX];
    void *driver;
    pid_t daemon;
    int status;

    if (read_options(argc, argv, &options) != 0) {
        fprintf(stderr, "usage: ipc_bench [--rounds N] [--size SIZE] [--json FILE] "
                        "[--limit US] [--lockd PATH]\n");
        return 2;
    }
    driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) {
        fprintf(stderr, "ipc_bench: no usable libcuda.so.1 (%s)\n", dlerror());
        return 77;
    }
    if (mkdtemp(folder) == NULL) {
        perror(folder);
        return 1;
    }
    daemon = start_daemon(&options, folder);
    status = measure_both(driver, &options);
    kill(daemon, SIGTERM);
    waitpid(daemon, NULL, 0);
    snprintf(socket, sizeof socket, "%s/lockd.sock", folder);
    unlink(socket);
    rmdir(folder);
    return status;
}

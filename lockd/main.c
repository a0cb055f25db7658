/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: gpushare-lockd's command line and the order in which it starts and ends.
 *
 * Exit codes: 0 ended as asked, or (on demand) another daemon serves already; 1 failed; 2
 * usage.
 */
#include "lockd/listen.h"
#include "lockd/log.h"
#include "lockd/options.h"
#include "lockd/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct arguments {
    const char *socket;
    uint64_t idle_exit_ns, quantum_ns, idle_ns, reserve, level;
    bool detach, foreground, help, version;
};

static const char usage[] =
    "usage: gpushare-lockd [options]\n"
    "Decides which programs may use a GPU, and how much of its memory, when they do not fit\n"
    "together. Programs start it when they need it; it also runs as a service.\n\n";

static int read_arguments(struct arguments *arguments, int argc, char **argv,
                          struct gs_err *err)
{
    const struct lockd_option table[] = {
        {"socket", "PATH", LOCKD_OPTION_TEXT, &arguments->socket, 0, 0,
         "where programs connect (default: as GPUSHARE_SOCKET or the standard place)"},
        {"idle-exit", "SECONDS", LOCKD_OPTION_SECONDS, &arguments->idle_exit_ns, 0, 86400,
         "end when no program has been connected for so long (default: never)"},
        {"detach", NULL, LOCKD_OPTION_FLAG, &arguments->detach, 0, 0,
         "go to the background once the socket listens"},
        {"foreground", NULL, LOCKD_OPTION_FLAG, &arguments->foreground, 0, 0,
         "stay in the foreground (the default)"},
        {"quantum", "MS|auto", LOCKD_OPTION_MS, &arguments->quantum_ns, 1, 3600000,
         "length of a turn (default auto: 20 times the measured cost of a switch)"},
        {"idle", "MS|auto", LOCKD_OPTION_MS, &arguments->idle_ns, 1, 3600000,
         "how long a holder may idle while others wait (default auto)"},
        {"reserve", "SIZE|auto", LOCKD_OPTION_SIZE, &arguments->reserve, 0, LOCKD_BYTES_MAX,
         "device memory that nobody gets (default auto: 1/64 of the device, 2 MiB to 1 GiB)"},
        {"log-level", "LEVEL", LOCKD_OPTION_LEVEL, &arguments->level, 0, 0,
         "error, warning, info or debug (default info)"},
        {"help", NULL, LOCKD_OPTION_FLAG, &arguments->help, 0, 0, "this text"},
        {"version", NULL, LOCKD_OPTION_FLAG, &arguments->version, 0, 0, "the release"},
        {0},
    };
    int index = 1;
    int code = lockd_options_parse(table, argc, argv, &index, err);

    if (code != 0)
        return code;
    if (arguments->help) {
        fputs(usage, stdout);
        lockd_options_help(table, stdout);
    }
    if (index != argc)
        return gs_err_set(err, -EINVAL, "unexpected argument '%s'", argv[index]);
    if (arguments->detach && arguments->foreground)
        return gs_err_set(err, -EINVAL, "--detach and --foreground exclude each other");
    return 0;
}

/* A program may start us with 0, 1 or 2 closed; a socket must never get such a number. */
static int open_standard(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return -errno;
    close(fd);
    return 0;
}

static int serve(const struct arguments *arguments, struct lockd_place *place,
                 struct gs_err *err)
{
    const struct lockd_server_options options = {
        .settings = {.quantum_ns = arguments->quantum_ns,
                     .idle_ns = arguments->idle_ns,
                     .reserve = arguments->reserve},
        .idle_exit_ns = arguments->idle_exit_ns,
    };
    struct lockd_server server;
    int code = lockd_server_init(&server, &options, place->listener, place->group, err);

    if (code == 0) {
        lockd_log(LOCKD_LOG_INFO, "%s serves %s", GS_VERSION, place->path);
        lockd_notify("READY=1");
        code = lockd_server_run(&server, err);
        lockd_notify("STOPPING=1");
    }
    lockd_place_leave(place); /* before the connections end: who comes back must not find us */
    lockd_server_deinit(&server);
    return code;
}

static int run(const struct arguments *arguments, struct gs_err *err)
{
    const bool on_demand = arguments->detach || arguments->idle_exit_ns != LOCKD_NEVER;
    struct lockd_place place;
    int code = lockd_place_take(&place, arguments->socket, err);

    if (code == LOCKD_ALREADY && on_demand)
        return 0;
    if (code == LOCKD_ALREADY)
        return gs_err_set(err, -EADDRINUSE, "another gpushare-lockd serves %s already",
                          place.path);
    if (code == 0 && arguments->detach)
        code = lockd_detach(&place, err);
    return code != 0 ? code : serve(arguments, &place, err);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {
        .idle_exit_ns = LOCKD_NEVER,
        .quantum_ns = LOCKD_AUTO,
        .idle_ns = LOCKD_AUTO,
        .reserve = LOCKD_AUTO,
        .level = LOCKD_LOG_INFO,
    };
    struct gs_err err = {0};

    if (open_standard() != 0)
        return 1;
    if (read_arguments(&arguments, argc, argv, &err) != 0) {
        fprintf(stderr, "gpushare-lockd: %s\n", err.text);
        return 2;
    }
    if (arguments.help)
        return 0;
    if (arguments.version) {
        puts("gpushare-lockd " GS_VERSION);
        return 0;
    }
    lockd_log_open((enum lockd_log_level)arguments.level);
    if (run(&arguments, &err) != 0) {
        lockd_log(LOCKD_LOG_ERROR, "%s", err.text);
        return 1;
    }
    return 0;
}

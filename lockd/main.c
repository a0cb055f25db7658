/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: gpushare-lockd's command line and the order in which it starts and ends.
 *
 * Exit codes: 0 ended as asked, or (on demand) another daemon already serves; 1 failed; 2 wrong
 * usage; 75 failed because something is missing that may exist a moment later.
 */
#include "common/fd.h"
#include "lockd/move/guard.h"
#include "lockd/server/server.h"
#include "lockd/start/sockets.h"

#include <fcntl.h>
#include <string.h>

#define OWN_OPTIONS 9
#define TEMPORARY   75 /* EX_TEMPFAIL: runtime/client/start.c tries again */

struct arguments {
    int argc;
    char **argv;
    const char *socket, *config;
    struct gs_places places; /* of the sockets */
    uint64_t guard;          /* process id; 0: a daemon is wanted */
    bool detach, foreground, check, help, version;
    bool guards; /* a guard of the guard service is wanted */
};

static const char usage[] =
    "usage: gpushare-lockd [options]\nDecide which programs may use a GPU, "
    "and how much of its memory, when they do not fit\ntogether. The first "
    "program that needs it starts it; it can also run as a service.\n\n";

/* Options of the command line alone; keys of the configuration file follow in --help. */
static void fill_own_table(struct arguments *arguments, struct gs_option table[])
{
    const struct gs_option own[] = {
        {"socket", "PATH", GS_OPTION_TEXT, &arguments->socket, 0, 0,
         "listen on this socket (default: GPUSHARE_SOCKET or the standard place)", NULL, 0, 0},
        {"config", "FILE", GS_OPTION_TEXT, &arguments->config, 0, 0,
         "read FILE and FILE.d/*.conf (default " LOCKD_CONFIG_PATH ")", NULL, 0, 0},
        {"check", NULL, GS_OPTION_FLAG, &arguments->check, 0, 0,
         "check the configuration, print the first error, and exit", NULL, 0, 0},
        {"detach", NULL, GS_OPTION_FLAG, &arguments->detach, 0, 0,
         "go to the background once the socket listens", NULL, 0, 0},
        {"foreground", NULL, GS_OPTION_FLAG, &arguments->foreground, 0, 0,
         "stay in the foreground (the default)", NULL, 0, 0},
        {"guard", "PID", GS_OPTION_COUNT, &arguments->guard, 1, INT32_MAX,
         "used by the daemon itself, for moves", NULL, 0, 0},
        {"guard-connection", NULL, GS_OPTION_FLAG, &arguments->guards, 0, 0,
         "used by gpushare-guard@.service: a guard for the connection that is standard input",
         NULL, 0, 0},
        {"help", NULL, GS_OPTION_FLAG, &arguments->help, 0, 0, "show this help", NULL, 'h', 0},
        {"version", NULL, GS_OPTION_FLAG, &arguments->version, 0, 0, "show the release", NULL,
         'V', 0},
    };

    _Static_assert(sizeof own / sizeof own[0] == OWN_OPTIONS, "count them");
    memcpy(table, own, sizeof own);
}

/* Prints what a shell may offer for the last word (common/complete.h). */
static int complete_line(int argc, char **argv)
{
    struct gs_option table[OWN_OPTIONS + LOCKD_CONFIG_KEYS + 1];
    struct arguments arguments;
    struct lockd_config config;

    fill_own_table(&arguments, table);
    lockd_config_table(&config, table + OWN_OPTIONS);
    return gs_complete_line(table, false, NULL, argc, argv);
}

static int read_arguments(struct arguments *arguments, struct lockd_config *config,
                          struct gs_err *err)
{
    struct gs_option table[OWN_OPTIONS + LOCKD_CONFIG_KEYS + 1];
    int index = 1, code;

    fill_own_table(arguments, table);
    lockd_config_table(config, table + OWN_OPTIONS);
    code = gs_options_parse(table, NULL, false, arguments->argc, arguments->argv, &index, err);
    if (code != 0)
        return code;
    if (arguments->help) {
        fputs(usage, stdout);
        table[OWN_OPTIONS].name = NULL;
        gs_options_help(table, stdout);
        puts("\noptions that are also keys of the configuration file (without the dashes)");
        lockd_config_table(config, table);
        gs_options_help(table, stdout);
    }
    if (index != arguments->argc)
        return gs_err_set(err, -EINVAL, "unexpected argument '%s'", arguments->argv[index]);
    if (arguments->detach && arguments->foreground)
        return gs_err_set(err, -EINVAL, "--detach and --foreground exclude each other");
    return 0;
}

/* Defaults, then the files, then the command line: at the start and at every reload. */
static int read_config(void *context, struct lockd_config *config, struct gs_err *err)
{
    struct arguments *arguments = context;
    struct lockd_config fresh;
    int code;

    lockd_config_default(&fresh);
    code = lockd_config_files(&fresh,
                              arguments->config != NULL ? arguments->config : LOCKD_CONFIG_PATH,
                              arguments->config != NULL, err);
    code = code != 0 ? code : read_arguments(arguments, &fresh, err);
    code = code != 0 ? code : lockd_config_finish(&fresh, err);
    code = code != 0 ? code : lockd_config_group(&fresh, err);
    if (code == 0)
        *config = fresh;
    return code;
}

static int serve_sockets(struct arguments *arguments, const struct lockd_config *config,
                         struct lockd_sockets *sockets, struct gs_err *err)
{
    int listeners[GS_PLACES];
    struct lockd_server server;
    int code;

    lockd_log_serve();
    for (unsigned i = 0; i < sockets->count; i++)
        listeners[i] = sockets->spot[i].listener;
    code = lockd_server_init(&server, config, listeners, sockets->count, sockets->group, err);
    if (code == 0) {
        server.reload.read = read_config;
        server.reload.context = arguments;
        server.successor.sockets = arguments->detach && !sockets->activated ? sockets : NULL;
        server.loop.sockets = sockets->named ? NULL : sockets;
        for (unsigned i = 0; i < sockets->count; i++)
            lockd_log(LOCKD_LOG_INFO, "%s serves %s", GS_VERSION, sockets->spot[i].path);
        lockd_notify("READY=1");
        code = lockd_server_run(&server, err);
        lockd_notify("STOPPING=1");
    }
    lockd_sockets_leave(
        sockets); /* before the connections end, because their programs reconnect at once */
    lockd_server_deinit(&server);
    return code;
}

static int run_daemon(struct arguments *arguments, const struct lockd_config *config,
                      struct gs_err *err)
{
    const bool on_demand = arguments->detach || config->set.idle_exit != LOCKD_NEVER;
    struct lockd_sockets sockets;
    sigset_t signals;
    int code;

    if (arguments->detach)
        lockd_inherited_drop(); /* resets the umask before a folder is made */
    lockd_server_hold_signals(&signals);
    code = lockd_sockets_take(&sockets, &arguments->places, err);
    if (code == LOCKD_ALREADY && on_demand)
        return 0;
    if (code == LOCKD_ALREADY)
        return gs_err_set(err, -EADDRINUSE, "another gpushare-lockd already serves %s",
                          sockets.served);
    if (code == 0 && arguments->detach)
        code = lockd_detach(&sockets, err);
    return code != 0 ? code : serve_sockets(arguments, config, &sockets, err);
}

/* Errors in the arguments and files end with 2, later ones with 1. */
static int prepare_config(struct arguments *arguments, struct lockd_config *config,
                          struct gs_err *err)
{
    int code;

    lockd_config_default(config);
    code = read_arguments(arguments, config, err); /* finds --config, --help */
    if (code != 0 || arguments->help || arguments->version)
        return code;
    if (arguments->guard != 0 || arguments->guards)
        return 0;
    if (arguments->config != NULL && arguments->config[0] != '/' && arguments->detach)
        return gs_err_set(err, -EINVAL, "--config %s: give the full path with --detach",
                          arguments->config);
    code = gs_socket_places(arguments->socket, &arguments->places, err);
    return code != 0 ? code : read_config(arguments, config, err);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {.argc = argc, .argv = argv};
    struct lockd_config config;
    struct gs_err err = {0};

    lockd_inherited_signals();
    signal(SIGPIPE, SIG_IGN); /* the process that reads the log may end */
    signal(SIGCHLD, SIG_IGN); /* the daemon does not wait for guards */
    signal(SIGTTOU, SIG_IGN); /* a line of the log must not stop a daemon in the background */
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow (ulimit -f) loses lines */
    if (gs_fd_open_standard(O_RDWR) != 0)
        return 1;
    if (gs_complete_asked(argc, argv))
        return complete_line(argc, argv);
    if (prepare_config(&arguments, &config, &err) != 0) {
        fprintf(stderr, "gpushare-lockd: %s\n", err.text);
        return 2;
    }
    if (arguments.version)
        puts("gpushare-lockd " GS_VERSION);
    if (arguments.help || arguments.version || arguments.check)
        return fflush(stdout) == 0 ? 0 : 1;
    if (arguments.guard != 0 || arguments.guards)
        return lockd_guard((int32_t)arguments.guard);
    lockd_log_open(lockd_log_level_at(config.set.log_level));
    if (run_daemon(&arguments, &config, &err) != 0) {
        lockd_log(LOCKD_LOG_ERROR, "%s", err.text);
        return err.code == -EMFILE || err.code == -ENFILE || err.code == -ENOMEM ||
                       err.code == -ENOBUFS || err.code == -EAGAIN
                   ? TEMPORARY
                   : 1;
    }
    return 0;
}

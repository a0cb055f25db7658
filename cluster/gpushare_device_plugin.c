/* SPDX-License-Identifier: Apache-2.0
 *
 * gpushare_device_plugin.c: the command line of gpushare-device-plugin. Exit codes: 0 ended as
 * asked, 1 failed, 2 usage.
 */
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>

#include "cluster/plugin.h"
#include "common/fd.h"
#include "lockd/base/log.h"
#include "common/options.h"

#define KUBELET     "/var/lib/kubelet"
#define SPEC        "/etc/cdi/gpushare.json"
#define PERIOD_MOST 3600000000000ull /* ns */

struct arguments {
    struct plugin_settings set;
    const char *spec, *socket;
    uint64_t per_gpu, period_ns, level;
    bool help, version;
};

/* A name as gpushare.dev/gpu, of letters that kubelet takes. */
static bool is_resource(const char *name)
{
    const char *slash = strchr(name, '/');

    return slash != NULL && slash != name && slash[1] != '\0' && strlen(name) < 250 &&
           strchr(slash + 1, '/') == NULL &&
           name[strspn(name,
                       "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._/")] ==
               '\0';
}

static int read_arguments(struct arguments *arguments, int argc, char **argv,
                          struct gs_err *err)
{
    const struct gs_option table[] = {
        {"per-gpu", "NUMBER", GS_OPTION_COUNT, &arguments->per_gpu, 1, CARDS_EACH,
         "containers that may have one GPU at the same time", "10", 0, 0},
        {"answer", "cdi|mounts", GS_OPTION_CHOICE, &arguments->set.answer, 0, 0,
         "name CDI devices, or list mounts and nodes (kubelet before 1.28)", "cdi", 0, 0},
        {"cdi", "FILE", GS_OPTION_TEXT, &arguments->spec, 0, 0,
         "read the CDI devices from FILE, which gpusharectl cdi generate wrote", SPEC, 0, 0},
        {"resource", "NAME", GS_OPTION_TEXT, &arguments->set.resource, 0, 0,
         "name of the resource that pods request", "gpushare.dev/gpu", 0, 0},
        {"kubelet", "FOLDER", GS_OPTION_TEXT, &arguments->set.folder, 0, 0,
         "folder of kubelet's socket for plugins", KUBELET "/device-plugins", 0, 0},
        {"pod-resources", "PATH", GS_OPTION_TEXT, &arguments->set.pod_resources, 0, 0,
         "kubelet's socket that lists the devices of other plugins",
         KUBELET "/pod-resources/kubelet.sock", 0, 0},
        {"socket", "PATH", GS_OPTION_TEXT, &arguments->socket, 0, 0,
         "gpushare-lockd's socket, for the demand on each GPU", NULL, 0, 0},
        {"nvml", "FILE", GS_OPTION_TEXT, &arguments->set.library, 0, 0,
         "the driver's management library (default: libnvidia-ml.so.1)", NULL, 0, 0},
        {"period", "SECONDS", GS_OPTION_SECONDS, &arguments->period_ns, 1000000000, PERIOD_MOST,
         "time between two checks of each GPU", "30", 0, 0},
        {"watch-within", "SECONDS", GS_OPTION_SECONDS, &arguments->set.watch_within, 1000000000,
         PERIOD_MOST,
         "time in which kubelet must begin to watch, else the plugin registers again", "30", 0,
         0},
        {"log-level", "error|warning|info|debug", GS_OPTION_CHOICE, &arguments->level, 0, 0,
         "lowest level of the messages that are logged", "info", 0, 0},
        {"help", NULL, GS_OPTION_FLAG, &arguments->help, 0, 0, "show this help", NULL, 'h', 0},
        {"version", NULL, GS_OPTION_FLAG, &arguments->version, 0, 0, "show the release", NULL,
         'V', 0},
        {0},
    };
    int index = 1, code = gs_options_parse(table, NULL, false, argc, argv, &index, err);

    if (code == 0 && index != argc)
        code = gs_err_set(err, -EINVAL, "unexpected argument '%s'", argv[index]);
    if (code == 0 && arguments->help) {
        fputs(
            "usage: gpushare-device-plugin [options]\nGive the GPUs of this machine to pods of "
            "Kubernetes: kubelet's device plugin for gpushare.\n\n",
            stdout);
        gs_options_help(table, stdout);
    }
    arguments->set.period_s = arguments->period_ns / 1000000000u;
    if (code != 0 || arguments->help || arguments->version)
        return code;
    if (!is_resource(arguments->set.resource))
        return gs_err_set(err, -EINVAL, "--resource %s: such a name is like gpushare.dev/gpu",
                          arguments->set.resource);
    return gs_socket_places(arguments->socket, &arguments->set.lockd, err);
}

int main(int argc, char **argv)
{
    struct arguments arguments = {
        .set = {.folder = KUBELET "/device-plugins",
                .resource = "gpushare.dev/gpu",
                .pod_resources = KUBELET "/pod-resources/kubelet.sock",
                .watch_within = 30000000000u},
        .spec = SPEC,
        .per_gpu = 10,
        .period_ns = 30000000000u,
        .level = 2,
    };
    static struct cards cards;
    struct gs_err err = {0};

    signal(SIGPIPE, SIG_IGN);
    umask(077);              /* kubelet is root, as the plugin is; nobody else connects */
    mallopt(M_ARENA_MAX, 1); /* the threads have little to allocate */
    mallopt(M_MMAP_THRESHOLD, 1 << 16); /* a large request leaves nothing behind */
    if (gs_fd_open_standard(O_RDWR) != 0)
        return 1;
    if (read_arguments(&arguments, argc, argv, &err) != 0) {
        fprintf(stderr, "gpushare-device-plugin: %s\n", err.text);
        return 2;
    }
    if (arguments.version)
        puts("gpushare-device-plugin " GS_VERSION);
    if (arguments.help || arguments.version)
        return fflush(stdout) == 0 ? 0 : 1;
    lockd_log_open(lockd_log_level_at(arguments.level));
    if (cards_read(&cards, arguments.spec, (unsigned)arguments.per_gpu, &err) != 0 ||
        plugin_run(&arguments.set, &cards, &err) != 0) {
        lockd_log(LOCKD_LOG_ERROR, "%s", err.text);
        return 1;
    }
    lockd_log(LOCKD_LOG_INFO, "has ended");
    _exit(0); /* the driver's library may be in use by the thread that watches the GPUs */
}

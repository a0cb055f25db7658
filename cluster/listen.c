/* SPDX-License-Identifier: Apache-2.0
 *
 * listen.c: see listen.h. The socket file is recognised by its inode.
 */
#include "cluster/listen.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "cluster/service.h"
#include "lockd/base/log.h"

#define BACKLOG 8

static int own_path(const struct plugin *plugin, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    return snprintf(address->sun_path, sizeof address->sun_path, "%s/" PLUGIN_ENDPOINT,
                    plugin->set.folder) < (int)sizeof address->sun_path
               ? 0
               : -ENAMETOOLONG;
}

bool listen_is_there(const struct plugin *plugin)
{
    struct sockaddr_un address;
    struct stat st;

    return plugin->listener >= 0 && own_path(plugin, &address) == 0 &&
           lstat(address.sun_path, &st) == 0 && st.st_ino == plugin->listener_inode;
}

void listen_close(struct plugin *plugin)
{
    struct sockaddr_un address;

    if (listen_is_there(plugin) && own_path(plugin, &address) == 0)
        unlink(address.sun_path);
    if (plugin->listener >= 0)
        close(plugin->listener);
    plugin->listener = -1;
}

int listen_open(struct plugin *plugin, struct gs_err *err)
{
    struct sockaddr_un address;
    struct stat st;
    int code = own_path(plugin, &address);

    if (code != 0)
        return gs_err_set(err, code, "%.300s: the path is too long for a socket",
                          plugin->set.folder);
    listen_close(plugin);
    plugin->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (plugin->listener < 0)
        return gs_err_errno(err, -errno, "socket");
    unlink(address.sun_path);
    if (bind(plugin->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(plugin->listener, BACKLOG) != 0 || lstat(address.sun_path, &st) != 0) {
        code = gs_err_errno(err, -errno, "%s", address.sun_path);
        close(plugin->listener);
        plugin->listener = -1;
        return code;
    }
    plugin->listener_inode = st.st_ino;
    return 0;
}

/* A free place; else that of the oldest connection without a call, which kubelet's watch is not;
 * else PLUGIN_PEERS. */
static unsigned find_place(const struct plugin *plugin)
{
    unsigned found = PLUGIN_PEERS;

    for (unsigned i = 0; i < PLUGIN_PEERS; i++) {
        if (plugin->peers[i].link == NULL)
            return i;
        if (grpc_link_calls(plugin->peers[i].link) == 0 &&
            (found == PLUGIN_PEERS || plugin->accepted[i] < plugin->accepted[found]))
            found = i;
    }
    return found;
}

void listen_accept(struct plugin *plugin)
{
    for (;;) {
        const int fd = accept4(plugin->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        unsigned i;

        if (fd < 0 && errno == EINTR)
            continue;
        if (fd < 0)
            return;
        i = find_place(plugin);
        if (i == PLUGIN_PEERS) {
            lockd_log(LOCKD_LOG_WARNING, "a connection was refused: there are %d", i);
            close(fd);
            continue;
        }
        grpc_peer_deinit(&plugin->peers[i]);
        plugin->accepted[i] = ++plugin->accepts;
        if (grpc_peer_init(&plugin->peers[i], fd, grpc_link_serve(service_methods, plugin)) !=
            0)
            lockd_log(LOCKD_LOG_WARNING, "a connection was refused: out of memory");
        else
            plugin->peers[i].lingers = true;
    }
}

void listen_run(struct grpc_peer *peer)
{
    if (grpc_peer_converse(peer, "a connection of kubelet") == 0)
        return;
    grpc_peer_deinit(peer);
    malloc_trim(0); /* the memory of one connection is not kept for the next */
}

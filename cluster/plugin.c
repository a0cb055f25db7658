/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin.c: the life of the plugin: it waits for kubelet's folder, its connections, the news of
 * the GPUs' health and signals. One thread; the health of the GPUs has another.
 */
#include "cluster/plugin.h"
#include "lockd/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cluster/health.h"
#include "cluster/registration.h"
#include "cluster/service.h"
#include "lockd/base/log.h"

#define DRAIN_MOST  5000000000ull /* ns for what is being answered when SIGTERM comes */
#define FOLDER_WAIT 1000000000ull /* ns between two looks for a folder that is gone */

/* --- kubelet's folder --- */

/* The right to serve in this folder, which one plugin has: two would remove each other's socket
 * without end. It lasts as long as the descriptor. */
static int own_folder(struct plugin *plugin, struct gs_err *err)
{
    if (plugin->owned >= 0)
        close(plugin->owned);
    plugin->owned = open(plugin->set.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (plugin->owned < 0)
        return gs_err_errno(err, -errno, "%.300s", plugin->set.folder);
    if (flock(plugin->owned, LOCK_EX | LOCK_NB) == 0)
        return 0;
    if (errno == EWOULDBLOCK)
        return gs_err_set(err, -EBUSY, "another gpushare-device-plugin serves %.300s",
                          plugin->set.folder);
    return 0; /* a file system without locks */
}

static int watch_folder(struct plugin *plugin, struct gs_err *err)
{
    if (plugin->folder >= 0)
        close(plugin->folder);
    plugin->folder = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (plugin->folder < 0)
        return gs_err_errno(err, -errno, "inotify");
    if (inotify_add_watch(plugin->folder, plugin->set.folder,
                          IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF |
                              IN_MOVE_SELF | IN_ONLYDIR) < 0)
        return gs_err_errno(err, -errno, "%.300s", plugin->set.folder);
    return 0;
}

/* The socket is made anew where kubelet removed it. */
static int serve_again(struct plugin *plugin, struct gs_err *err)
{
    const int code = listen_is_there(plugin) ? 0 : listen_open(plugin, err);

    if (code == 0)
        registration_restart(plugin);
    return code;
}

static int take_event(struct plugin *plugin, const struct inotify_event *event,
                      struct gs_err *err)
{
    const bool came = (event->mask & (IN_CREATE | IN_MOVED_TO)) != 0;

    if ((event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT)) != 0)
        return gs_err_set(err, -ENOENT, "%.300s was removed", plugin->set.folder);
    if ((event->mask & IN_Q_OVERFLOW) != 0) { /* kubelet's start may be among what is lost */
        lockd_log(LOCKD_LOG_WARNING, "%s: events were lost", plugin->set.folder);
        return serve_again(plugin, err);
    }
    if (event->len == 0)
        return 0;
    if (came)
        rival_see(plugin, event->name);
    if (came && strcmp(event->name, PLUGIN_KUBELET) == 0) {
        lockd_log(LOCKD_LOG_INFO, "kubelet has started");
        return serve_again(plugin, err);
    }
    if (strcmp(event->name, PLUGIN_ENDPOINT) == 0 && !listen_is_there(plugin)) {
        lockd_log(LOCKD_LOG_INFO, "the plugin's socket was removed or replaced; it is made "
                                  "again");
        return serve_again(plugin, err);
    }
    return 0;
}

static int read_folder(struct plugin *plugin, struct gs_err *err)
{
    char bytes[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
    const ssize_t size = read(plugin->folder, bytes, sizeof bytes);
    int code = 0;

    for (ssize_t at = 0; at < size && code == 0;) {
        const struct inotify_event *event = (const void *)(bytes + at);

        code = take_event(plugin, event, err);
        at += (ssize_t)(sizeof *event + event->len);
    }
    return code;
}

/* --- the rest of what is waited for --- */

static void read_news(struct plugin *plugin)
{
    struct health_news news;
    bool changed = false;

    while (read(plugin->news, &news, sizeof news) == (ssize_t)sizeof news) {
        struct card *card = &plugin->cards.card[news.card];

        card->healthy = news.healthy;
        snprintf(card->why, sizeof card->why, "%s", news.why);
        changed = true;
        if (news.healthy)
            lockd_log(LOCKD_LOG_INFO, "GPU %s works again", card->name);
        else
            lockd_log(LOCKD_LOG_ERROR, "GPU %s is not healthy: %s", card->name, card->why);
    }
    if (changed)
        service_tell(plugin);
}

enum { AT_SIGNALS, AT_FOLDER, AT_NEWS, AT_LISTENER, AT_REGISTRATION, AT_RIVAL, AT_PEERS };

#define PLACES (AT_PEERS + PLUGIN_PEERS)

static void fill_polls(const struct plugin *plugin, struct pollfd polls[PLACES])
{
    /* a signal stays readable, and says nothing new while the plugin ends */
    const int own[] = {plugin->draining ? -1 : plugin->signals, plugin->folder, plugin->news,
                       plugin->listener};

    for (unsigned i = 0; i < AT_REGISTRATION; i++)
        polls[i] = (struct pollfd){.fd = own[i], .events = POLLIN};
    polls[AT_REGISTRATION] =
        (struct pollfd){.fd = plugin->registration.peer.fd,
                        .events = grpc_peer_events(&plugin->registration.peer)};
    polls[AT_RIVAL] = (struct pollfd){.fd = plugin->rival.peer.fd,
                                      .events = grpc_peer_events(&plugin->rival.peer)};
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        polls[AT_PEERS + i] = (struct pollfd){.fd = plugin->peers[i].fd,
                                              .events = grpc_peer_events(&plugin->peers[i])};
}

/* One round. 0; 1: a signal says to end; -errno. */
static int run_once(struct plugin *plugin, uint64_t until, struct gs_err *err)
{
    struct pollfd polls[PLACES];
    int code = 0;

    fill_polls(plugin, polls);
    if (poll(polls, PLACES, lockd_ms_until(until)) < 0 && errno != EINTR)
        return gs_err_errno(err, -errno, "poll");
    if (polls[AT_NEWS].revents != 0)
        read_news(plugin);
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        if (plugin->peers[i].link != NULL)
            listen_run(&plugin->peers[i]);
    if (polls[AT_SIGNALS].revents != 0)
        return 1;
    if (plugin->draining)
        return 0;
    if (polls[AT_LISTENER].revents != 0)
        listen_accept(plugin);
    if (polls[AT_FOLDER].revents != 0)
        code = read_folder(plugin, err);
    if (code == 0 && !plugin->registration.done && !listen_is_there(plugin))
        code = listen_open(plugin, err); /* before kubelet is told of it */
    if (code == 0) {
        registration_run(plugin);
        rival_run(plugin);
    }
    return code;
}

/* --- beginning and end --- */

static bool has_peers(const struct plugin *plugin)
{
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        if (plugin->peers[i].link != NULL)
            return true;
    return false;
}

/* Answers what was asked, tells kubelet that the devices go, and takes nothing new. */
static void drain_calls(struct plugin *plugin)
{
    const uint64_t until = lockd_now() + DRAIN_MOST;
    struct gs_err err = {0};

    lockd_log(LOCKD_LOG_INFO, "ending; running pods keep their GPUs");
    plugin->draining = true;
    listen_close(plugin);
    grpc_peer_deinit(&plugin->registration.peer);
    grpc_peer_deinit(&plugin->rival.peer);
    service_end_watches(plugin);
    for (unsigned i = 0; i < PLUGIN_PEERS; i++) {
        if (plugin->peers[i].link == NULL)
            continue;
        grpc_link_drain(plugin->peers[i].link);
        listen_run(&plugin->peers[i]);
    }
    while (has_peers(plugin) && lockd_now() < until)
        if (run_once(plugin, until, &err) != 0)
            break;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

/* The folder is there when kubelet is; a node on which it comes later is waited for, and so is
 * a plugin that has not ended yet. */
static int wait_for_folder(struct plugin *plugin, struct gs_err *err)
{
    int said = 0;

    for (;;) {
        struct pollfd signals = {.fd = plugin->signals, .events = POLLIN};
        struct gs_err why = {0};
        int code = own_folder(plugin, &why);

        code = code ?: watch_folder(plugin, &why);
        code = code ?: listen_open(plugin, &why);
        if (code == 0)
            return 0;
        if (code != -ENOENT && code != -ENOTDIR && code != -EBUSY)
            return gs_err_set(err, code, "%s", why.text);
        if (said != code)
            lockd_log(LOCKD_LOG_WARNING, "%s; waiting %s", why.text,
                      code == -EBUSY ? "until it ends" : "for it");
        said = code;
        if (poll(&signals, 1, (int)(FOLDER_WAIT / 1000000)) > 0)
            return 1;
    }
}

static int serve_kubelet(struct plugin *plugin, struct gs_err *err)
{
    int code = wait_for_folder(plugin, err);

    while (code == 0) {
        struct gs_err why = {0};

        code = run_once(
            plugin, lockd_lesser(plugin->rival.ask_at, plugin->registration.again_at), &why);
        if (code == -ENOENT) { /* the folder is gone, and kubelet with it */
            lockd_log(LOCKD_LOG_WARNING, "%s", why.text);
            code = wait_for_folder(plugin, err);
            if (code == 0)
                registration_restart(plugin);
        } else if (code < 0) {
            gs_err_set(err, code, "%s", why.text);
        }
    }
    if (code == 1)
        drain_calls(plugin);
    return code == 1 ? 0 : code;
}

static void plugin_init(struct plugin *plugin, const struct plugin_settings *set,
                        struct cards *cards)
{
    *plugin = (struct plugin){.set = *set,
                              .cards = *cards,
                              .signals = -1,
                              .folder = -1,
                              .owned = -1,
                              .news = -1,
                              .listener = -1};
    registration_init(&plugin->registration);
    rival_init(&plugin->rival);
    for (unsigned i = 0; i < PLUGIN_PEERS; i++)
        plugin->peers[i].fd = -1;
}

static void say_what_mounts_lack(const struct plugin *plugin)
{
    if (plugin->set.answer != ALLOCATE_MOUNTS)
        return;
    if (edits_have(&plugin->cards, "hooks"))
        lockd_log(LOCKD_LOG_WARNING,
                  "the specification has hooks, which mounts cannot express: write it with "
                  "gpusharectl cdi generate --nvidia none");
    if (edits_have(&plugin->cards, "additionalGids"))
        lockd_log(LOCKD_LOG_INFO, "pods that are not root need the socket's group in "
                                  "securityContext.supplementalGroups");
}

int plugin_run(const struct plugin_settings *set, struct cards *cards, struct gs_err *err)
{
    static struct plugin plugin; /* a single instance for each process */
    struct gs_err why = {0};
    int code;

    plugin_init(&plugin, set, cards);
    plugin.signals = open_signals();
    plugin.news = health_start(&plugin.cards, set->library, (unsigned)set->period_s, &why);
    if (plugin.signals < 0 || plugin.news < 0)
        return gs_err_set(err, -EMFILE, "no descriptors or threads are left");
    if (why.code != 0)
        lockd_log(LOCKD_LOG_WARNING, "%s: only the device nodes tell whether a GPU is healthy",
                  why.text);
    for (unsigned i = 0; i < plugin.cards.count; i++)
        lockd_log(LOCKD_LOG_INFO, "GPU %s: %u devices", plugin.cards.card[i].name,
                  plugin.cards.each);
    say_what_mounts_lack(&plugin);
    code = serve_kubelet(&plugin, err);
    listen_close(&plugin);
    return code;
}

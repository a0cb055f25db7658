/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the daemon's event loop: passes events to the files that handle them, calls the
 * scheduler and every other part when its time has come, frees connections that have ended, and
 * ends the daemon on request or when no program has been connected for a while. One thread, nothing
 * blocks.
 *
 * While events are handled a connection is only marked dead; it is freed after them, so no event
 * belongs to a freed connection.
 */
#include "lockd/server/server.h"

#include "lockd/start/sockets.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define EVENTS              64
#define FIRST_PROGRAM_NS    1000000000u
#define SUPERSEDED_EVERY_NS 1000000000u

static int watch_descriptor(struct lockd_server *server, int fd, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};

    return epoll_ctl(server->loop.epoll, EPOLL_CTL_ADD, fd, &event) != 0 ? -errno : 0;
}

int lockd_server_hold_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
    return sigprocmask(SIG_BLOCK, set, NULL) != 0 ? -errno : 0;
}

/* Half of systemd's time limit between two signs of life, ns; 0: there is none. */
static uint64_t read_watchdog_interval(void)
{
    const char *text = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    unsigned long long usec;
    char *end;

    if (text == NULL || (pid != NULL && strtol(pid, NULL, 10) != (long)getpid()))
        return 0;
    errno = 0;
    usec = strtoull(text, &end, 10);
    return errno == 0 && *end == '\0' && usec >= 1000 && usec < 1ull << 40 ? usec * 500 : 0;
}

int lockd_server_init(struct lockd_server *server, const struct lockd_config *config,
                      const int *listeners, unsigned count, gid_t group, struct gs_err *err)
{
    sigset_t set;
    int code = 0;

    memset(server, 0, sizeof *server);
    server->config = *config;
    lockd_admit_init(&server->admission, listeners, count, group);
    server->started = server->connections.programs_gone = lockd_now();
    lockd_identity_read_own(&server->here);
    server->loop.watchdog.every_ns = read_watchdog_interval();
    server->started_real = lockd_now_real();
    server->loop.watchdog.at = server->started;
    server->quota.tell_at = LOCKD_NEVER;
    lockd_hostwatch_init(&server->host);
    lockd_closer_init(server);
    server->loop.signals = lockd_server_hold_signals(&set) == 0
                               ? signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)
                               : -1;
    server->loop.epoll = epoll_create1(EPOLL_CLOEXEC);
    server->scheduler = sched_new(&config->settings, server->started);
    if (server->loop.signals < 0 || server->loop.epoll < 0)
        code = -errno;
    else if (server->scheduler == NULL)
        code = -ENOMEM;
    lockd_mover_init(server);
    if (server->scheduler != NULL)
        lockd_relations_init(server);
    code = code != 0 ? code
                     : watch_descriptor(server, server->loop.signals, &server->loop.signals);
    for (unsigned i = 0; i < count && code == 0; i++)
        code = watch_descriptor(server, server->admission.listeners[i],
                                &server->admission.listeners[i]);
    if (code != 0)
        return gs_err_errno(err, code, "cannot set up the event loop");
    return lockd_admit_open(&server->admission, err);
}

static void bury_dead(struct lockd_server *server)
{
    while (!lockd_list_empty(&server->connections.dead)) {
        struct lockd_connection *connection =
            lockd_entry(server->connections.dead.next, struct lockd_connection, link);
        struct sched_client *client = connection->client;

        connection->client = NULL;
        if (client != NULL) {
            lockd_log(LOCKD_LOG_DEBUG, "%s (process %d) has ended", connection->hello.name,
                      (int)connection->peer.pid);
            lockd_trace_gone(connection);
            lockd_status_gone(connection, client);
            lockd_relations_gone(connection);
            sched_client_gone(client, lockd_now());
            lockd_quota_gone(connection);
            lockd_share_gone(connection);
            server->host.stale = true;
            connection->user->programs--;
            if (--server->connections.programs == 0)
                server->connections.programs_gone = lockd_now();
        }
        lockd_connection_free(connection);
        server->admission.room_made = true;
        lockd_targets_send(server);
    }
}

/* The program that started the daemon may not have connected yet. */
static uint64_t idle_deadline(const struct lockd_server *server)
{
    uint64_t wait = server->config.set.idle_exit;

    if (wait == LOCKD_NEVER || server->connections.programs != 0)
        return LOCKD_NEVER;
    if (server->connections.programs_gone == server->started && wait < FIRST_PROGRAM_NS)
        wait = FIRST_PROGRAM_NS;
    return server->connections.programs_gone + wait;
}

static uint64_t feed_watchdog(struct lockd_server *server, uint64_t now)
{
    if (server->loop.watchdog.every_ns == 0)
        return LOCKD_NEVER;
    if (now >= server->loop.watchdog.at) {
        lockd_notify("WATCHDOG=1");
        server->loop.watchdog.at = now + server->loop.watchdog.every_ns;
    }
    return server->loop.watchdog.at;
}

static uint64_t look_for_service(struct lockd_server *server, uint64_t now)
{
    if (server->loop.sockets == NULL)
        return LOCKD_NEVER;
    if (now >= server->loop.sockets_at) {
        if (lockd_sockets_is_superseded(server->loop.sockets)) {
            lockd_log(LOCKD_LOG_INFO,
                      "a service has started and takes over the programs: ending");
            server->loop.stop = true;
        }
        server->loop.sockets_at = now + SUPERSEDED_EVERY_NS;
    }
    return server->loop.sockets_at;
}

uint64_t lockd_server_tend(struct lockd_server *server)
{
    const uint64_t now = lockd_now();
    uint64_t next;

    next = lockd_lesser(lockd_hostwatch_tend(server, now), lockd_quota_tend(server, now));
    next = lockd_lesser(next, lockd_relations_tend(server, now));
    next = lockd_lesser(next, lockd_card_tend(server, now));
    if (now >= sched_deadline(server->scheduler))
        sched_tick(server->scheduler, now);
    lockd_targets_send(server);
    next = lockd_lesser(next, lockd_connection_resume(server, now));
    next = lockd_lesser(next, lockd_admit_silent(server, now));
    next = lockd_lesser(next, lockd_move_tend(&server->moves, now));
    lockd_targets_send(server);
    next = lockd_lesser(next, lockd_handover_tend(server, now));
    next = lockd_lesser(next, lockd_share_tend(server, now));
    bury_dead(server);
    next = lockd_lesser(next, lockd_trace_flush(server, now));
    bury_dead(server); /* trace listeners that ended */
    next = lockd_lesser(next, lockd_closer_tend(server, now));
    lockd_admit_again(server);
    next = lockd_lesser(next, feed_watchdog(server, now));
    next = lockd_lesser(next, lockd_successor_tend(server, now));
    next = lockd_lesser(next, look_for_service(server, now));
    if (now >= idle_deadline(server)) {
        lockd_log(LOCKD_LOG_INFO, "no program is connected: ending");
        server->loop.stop = true;
    }
    next = lockd_lesser(next, idle_deadline(server));
    return lockd_lesser(next, sched_deadline(server->scheduler));
}

static void take_signals(struct lockd_server *server)
{
    struct signalfd_siginfo info;
    struct gs_err err = {0};

    while (read(server->loop.signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            lockd_reload_config(server, &err); /* it logs its errors */
            continue;
        }
        server->loop.stop = true;
        lockd_log(LOCKD_LOG_INFO, "ending on request; programs keep their memory");
    }
}

static void handle_event(struct lockd_server *server, const struct epoll_event *event)
{
    struct lockd_connection *connection = event->data.ptr;

    if (event->data.ptr == &server->loop.signals) {
        take_signals(server);
    } else if (lockd_admit_event(&server->admission, event->data.ptr)) {
        return; /* accepted later, when ended connections have made room */
    } else if (lockd_move_event(&server->moves, event->data.ptr)) {
        lockd_targets_send(server);
    } else {
        /* a throttled connection that has closed its end: its unread messages are lost */
        if (connection->rate.throttled && (event->events & (EPOLLHUP | EPOLLERR)) != 0)
            lockd_connection_kill(connection, NULL);
        if (!connection->dead && (event->events & EPOLLOUT) != 0)
            lockd_outbox_drain(connection);
        if (!connection->dead && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
            lockd_connection_readable(connection);
    }
}

int lockd_server_run(struct lockd_server *server, struct gs_err *err)
{
    struct epoll_event events[EVENTS];
    uint64_t deadline = lockd_server_tend(server);

    while (!server->loop.stop) {
        const int count =
            epoll_wait(server->loop.epoll, events, EVENTS, lockd_ms_until(deadline));

        if (count < 0 && errno != EINTR)
            return gs_err_errno(err, -errno, "epoll_wait");
        for (int i = 0; i < count; i++)
            handle_event(server, &events[i]);
        deadline = lockd_server_tend(server);
        lockd_admit_callers(server);
        deadline = lockd_lesser(deadline, lockd_admit_resume(server, lockd_now()));
    }
    return 0;
}

void lockd_server_deinit(struct lockd_server *server)
{
    lockd_each (struct lockd_connection, connection, &server->connections.all, link)
        lockd_connection_free(connection);
    lockd_each (struct lockd_connection, connection, &server->connections.dead, link)
        lockd_connection_free(connection);
    lockd_handover_deinit(server);
    lockd_closer_deinit(server);
    lockd_card_stop(&server->cards);
    lockd_users_deinit(&server->users);
    lockd_relations_deinit(server);
    sched_free(server->scheduler);
    lockd_trace_deinit(&server->trace);
    lockd_admit_deinit(&server->admission);
    if (server->loop.epoll >= 0)
        close(server->loop.epoll);
    if (server->loop.signals >= 0)
        close(server->loop.signals);
}

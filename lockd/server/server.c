/* SPDX-License-Identifier: Apache-2.0
 *
 * server.c: the daemon's event loop: hands events to who handles them, wakes the lock and
 * everything else that asked for a time, frees connections that ended, takes over a new
 * configuration, and leaves when told to or when nobody has needed it for a while. One thread,
 * nothing blocks.
 *
 * A connection is only marked dead while events are handled and freed after them, so no event
 * can meet a freed one.
 */
#include "lockd/server/server.h"
#include "lockd/start/listen.h"
#include "lockd/base/log.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define EVENTS              64
#define FIRST_PROGRAM_NS    1000000000u
#define HOST_EVERY_NS       2000000000u /* while programs are connected */
#define SUPERSEDED_EVERY_NS 1000000000u

static int watch(struct lockd_server *server, int fd, void *tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = tag};

    return epoll_ctl(server->epoll, EPOLL_CTL_ADD, fd, &event) != 0 ? -errno : 0;
}

static int open_signals(void)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    if (sigprocmask(SIG_BLOCK, &set, NULL) != 0)
        return -errno;
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

/* systemd expects a sign of life in every half of this time. */
static uint64_t watchdog_interval(void)
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
    int code = 0;

    memset(server, 0, sizeof *server);
    server->config = *config;
    server->listener_count = count;
    memcpy(server->listeners, listeners, count * sizeof *listeners);
    server->group = group;
    server->spare = -1;
    server->started = server->programs_gone = lockd_now();
    server->watchdog_ns = watchdog_interval();
    server->watchdog_at = server->started;
    server->quota_at = LOCKD_NEVER;
    lockd_host_init(&server->host);
    lockd_list_init(&server->connections);
    lockd_list_init(&server->dead);
    lockd_list_init(&server->silent);
    lockd_list_init(&server->throttled);
    lockd_list_init(&server->users);
    lockd_list_init(&server->freezes);
    lockd_closer_init(server);
    server->signals = open_signals();
    server->epoll = epoll_create1(EPOLL_CLOEXEC);
    server->lock = sched_new(&config->settings, server->started);
    if (server->signals < 0 || server->epoll < 0)
        code = -errno;
    else if (server->lock == NULL)
        code = -ENOMEM;
    code = code != 0 ? code : watch(server, server->signals, &server->signals);
    for (unsigned i = 0; i < count && code == 0; i++)
        code = watch(server, listeners[i], &server->listeners[i]);
    if (code != 0)
        return gs_err_errno(err, code, "cannot set up the event loop");
    server->listening = true;
    return lockd_admit_init(server, err);
}

void lockd_server_bury(struct lockd_server *server)
{
    while (!lockd_list_empty(&server->dead)) {
        struct lockd_connection *connection =
            lockd_entry(server->dead.next, struct lockd_connection, link);
        struct sched_client *client = connection->client;

        connection->client = NULL;
        if (client != NULL) {
            lockd_log(LOCKD_LOG_DEBUG, "%s (process %d) is gone", connection->name,
                      (int)connection->pid);
            lockd_trace_gone(connection);
            sched_client_gone(server->lock, client, lockd_now());
            lockd_quota_gone(connection);
            server->host_stale = true;
            connection->user->programs--;
            if (--server->program_count == 0)
                server->programs_gone = lockd_now();
        }
        lockd_connection_free(connection);
        lockd_admit_again(server);
        lockd_server_flush(server);
    }
}

/* Whoever started us has yet to connect. */
static uint64_t idle_deadline(const struct lockd_server *server)
{
    uint64_t wait = server->config.set.idle_exit;

    if (wait == LOCKD_NEVER || server->program_count != 0)
        return LOCKD_NEVER;
    if (server->programs_gone == server->started && wait < FIRST_PROGRAM_NS)
        wait = FIRST_PROGRAM_NS;
    return server->programs_gone + wait;
}

static uint64_t sooner(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static pid_t pid_seen(const struct lockd_connection *connection)
{
    return connection->foreign ? 0 : connection->pid;
}

static void find_common_group(struct lockd_server *server)
{
    bool first = true;

    lockd_list_each (at, &server->connections) {
        const struct lockd_connection *each = lockd_entry(at, struct lockd_connection, link);

        if (each->client == NULL)
            continue;
        lockd_host_came(&server->host, first, pid_seen(each));
        first = false;
    }
    server->host_stale = false;
}

/* At the start, so that the first program's first target has its part; then nobody needs it
 * while no program is connected. */
static uint64_t tell_host(struct lockd_server *server, uint64_t now)
{
    if (server->program_count == 0 && server->host_at != 0)
        return LOCKD_NEVER;
    if (now >= server->host_at) {
        uint64_t available;

        if (server->host_stale)
            find_common_group(server);
        available = lockd_host_available(&server->host);
        if (available != UINT64_MAX)
            sched_host(server->lock, available, now);
        server->host_at = now + HOST_EVERY_NS;
    }
    return server->host_at;
}

void lockd_server_came(struct lockd_server *server, const struct lockd_connection *connection)
{
    if (!lockd_host_came(&server->host, server->program_count == 1, pid_seen(connection)))
        return;
    server->host_at = 0;
    tell_host(server, lockd_now());
}

static uint64_t feed_watchdog(struct lockd_server *server, uint64_t now)
{
    if (server->watchdog_ns == 0)
        return LOCKD_NEVER;
    if (now >= server->watchdog_at) {
        lockd_notify("WATCHDOG=1");
        server->watchdog_at = now + server->watchdog_ns;
    }
    return server->watchdog_at;
}

static uint64_t look_for_another(struct lockd_server *server, uint64_t now)
{
    if (server->superseded == NULL)
        return LOCKD_NEVER;
    if (now >= server->superseded_at) {
        if (server->superseded(server->superseded_context)) {
            lockd_log(LOCKD_LOG_INFO, "a service has come up: leaving it the programs");
            server->stop = true;
        }
        server->superseded_at = now + SUPERSEDED_EVERY_NS;
    }
    return server->superseded_at;
}

uint64_t lockd_server_tend(struct lockd_server *server)
{
    const uint64_t now = lockd_now();
    uint64_t next;

    next = sooner(tell_host(server, now), lockd_quota_tend(server, now));
    if (now >= sched_deadline(server->lock))
        sched_tick(server->lock, now);
    lockd_server_flush(server);
    next = sooner(next, lockd_connection_resume(server, now));
    next = sooner(next, lockd_admit_silent(server, now));
    next = sooner(next, lockd_checkpoint_tend(server, now));
    lockd_server_flush(server);
    next = sooner(next, lockd_handover_tend(server, now));
    lockd_server_bury(server);
    next = sooner(next, lockd_trace_flush(server, now));
    lockd_server_bury(server); /* listeners that ended */
    next = sooner(next, lockd_closer_tend(server, now));
    if (server->closed_late) {
        server->closed_late = false;
        lockd_admit_again(server);
    }
    next = sooner(next, feed_watchdog(server, now));
    next = sooner(next, lockd_successor_tend(server, now));
    next = sooner(next, look_for_another(server, now));
    if (now >= idle_deadline(server)) {
        lockd_log(LOCKD_LOG_INFO, "no program is connected any more: leaving");
        server->stop = true;
    }
    next = sooner(next, idle_deadline(server));
    return sooner(next, sched_deadline(server->lock));
}

static int milliseconds_until(uint64_t deadline)
{
    const uint64_t now = lockd_now();
    uint64_t ms;

    if (deadline == LOCKD_NEVER)
        return -1;
    if (deadline <= now)
        return 0;
    ms = (deadline - now + 999999) / 1000000;
    return ms > 3600000 ? 3600000 : (int)ms;
}

static void take_signals(struct lockd_server *server)
{
    struct signalfd_siginfo info;
    struct gs_err err = {0};

    while (read(server->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGHUP) {
            lockd_server_reload(server, &err); /* which says what was wrong */
            continue;
        }
        server->stop = true;
        lockd_log(LOCKD_LOG_INFO, "asked to end; programs keep what they hold");
    }
}

/* Its number, or listener_count: it is none. */
static unsigned listener_of(const struct lockd_server *server, const void *pointer)
{
    unsigned i = 0;

    while (i < server->listener_count && pointer != &server->listeners[i])
        i++;
    return i;
}

static void handle(struct lockd_server *server, const struct epoll_event *event)
{
    const unsigned listener = listener_of(server, event->data.ptr);
    struct lockd_connection *connection = event->data.ptr;

    if (event->data.ptr == &server->signals) {
        take_signals(server);
    } else if (listener < server->listener_count) {
        server->called |= 1u << listener; /* accepted when those who left have made room */
    } else if (lockd_checkpoint_event(server, event->data.ptr)) {
        lockd_server_flush(server);
    } else {
        /* one that is read later but has left already: what it said last is lost with it */
        if (connection->throttled && (event->events & (EPOLLHUP | EPOLLERR)) != 0)
            lockd_connection_kill(connection, NULL);
        if (!connection->dead && (event->events & EPOLLOUT) != 0)
            lockd_connection_writable(connection);
        if (!connection->dead && (event->events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
            lockd_connection_readable(connection);
    }
}

int lockd_server_run(struct lockd_server *server, struct gs_err *err)
{
    struct epoll_event events[EVENTS];
    uint64_t deadline = lockd_server_tend(server);

    while (!server->stop) {
        const int count =
            epoll_wait(server->epoll, events, EVENTS, milliseconds_until(deadline));

        if (count < 0 && errno != EINTR)
            return gs_err_errno(err, -errno, "epoll_wait");
        for (int i = 0; i < count; i++)
            handle(server, &events[i]);
        deadline = lockd_server_tend(server);
        for (unsigned i = 0; i < server->listener_count; i++)
            if ((server->called & 1u << i) != 0)
                lockd_admit_one(server, server->listeners[i]);
        server->called = 0;
        deadline = sooner(deadline, lockd_admit_resume(server, lockd_now()));
    }
    return 0;
}

void lockd_server_deinit(struct lockd_server *server)
{
    lockd_list_each (at, &server->connections)
        lockd_connection_free(lockd_entry(at, struct lockd_connection, link));
    lockd_list_each (dead, &server->dead)
        lockd_connection_free(lockd_entry(dead, struct lockd_connection, link));
    lockd_handover_deinit(server);
    lockd_closer_deinit(server);
    sched_free(server->lock);
    lockd_trace_deinit(&server->trace);
    for (unsigned i = 0; i < server->listener_count; i++)
        close(server->listeners[i]);
    if (server->epoll >= 0)
        close(server->epoll);
    if (server->signals >= 0)
        close(server->signals);
    if (server->spare >= 0)
        close(server->spare);
}

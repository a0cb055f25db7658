/* SPDX-License-Identifier: Apache-2.0
 *
 * reload.c: replaces the present configuration by what was read again or changed by
 * gpusharectl. No state.
 */
#include "lockd/server/reload.h"

#include "lockd/base/clock.h"
#include "lockd/base/log.h"
#include "lockd/server/closer.h"
#include "lockd/server/handover.h"
#include "lockd/server/quota.h"
#include "lockd/server/server.h"
#include "lockd/server/wish.h"
#include "lockd/start/inherited.h"

#include <errno.h>

void lockd_reload_apply(struct lockd_server *server, const struct lockd_config *config)
{
    const bool handed_over = server->config.hands_over;
    const struct lockd_lines classes = server->config.classes;

    server->config = *config;
    lockd_log_open(lockd_config_log_level(config));
    lockd_handover_changed(server, handed_over);
    sched_set(server->scheduler, &config->settings, lockd_now());
    lockd_quota_changed(server);
    lockd_each (struct lockd_connection, each, &server->connections.all, link) {
        /* else a program that was asked for a descriptor may be about to send it */
        if (each->client != NULL && handed_over != server->config.hands_over)
            lockd_closer_allow(each, server->config.hands_over || each->asked);
        lockd_wish_reconsider(each, &classes);
    }
}

int lockd_reload_config(struct lockd_server *server, struct gs_err *err)
{
    struct lockd_config config = server->config;
    int code;

    if (server->reload.read == NULL)
        return gs_err_set(err, -EOPNOTSUPP, "this daemon has no configuration file");
    lockd_notify("RELOADING=1");
    code = server->reload.read(server->reload.context, &config, err);
    if (code == 0) {
        lockd_reload_apply(server, &config);
        lockd_log(LOCKD_LOG_INFO, "the configuration was read again");
    } else {
        lockd_log(LOCKD_LOG_ERROR, "the configuration was not changed: %s", err->text);
    }
    lockd_notify("READY=1");
    return code;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * reload.h: replaces the configuration while the daemon serves.
 */
#ifndef GS_LOCKD_SERVER_RELOAD_H
#define GS_LOCKD_SERVER_RELOAD_H

#include "common/err.h"

struct lockd_config;
struct lockd_server;

/* Reads the configuration again, for SIGHUP and `gpusharectl reload`. config: in: the present,
 * out: the new configuration. 0, or -errno with config untouched. */
typedef int lockd_reload(void *context, struct lockd_config *config, struct gs_err *err);

/* How this daemon reads its configuration. */
struct lockd_reloading {
    lockd_reload *read; /* NULL: it has none */
    void *context;
};

/* Replaces the configuration by another, which lockd_config_finish() has accepted. */
void lockd_reload_apply(struct lockd_server *server, const struct lockd_config *config);

/* Reads the configuration again and applies it. 0, or -errno and nothing has changed. */
int lockd_reload_config(struct lockd_server *server, struct gs_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * config.h: everything that can be set about the daemon, from its files and its command line.
 */
#ifndef GS_LOCKD_START_CONFIG_H
#define GS_LOCKD_START_CONFIG_H

#include "common/err.h"
#include "lockd/sched/scheduler.h"
#include "lockd/base/options.h"

#include <stddef.h>
#include <sys/types.h>

#define LOCKD_CONFIG_PATH "/etc/gpushare/lockd.conf"
#define LOCKD_CONFIG_MAX  65536 /* bytes of one file */

struct lockd_limits {
    uint64_t connections; /* of one user at once */
    uint64_t programs;    /* ... that said HELLO */
    uint64_t memory;      /* bytes that one user's programs may have on one device together;
                             UINT64_MAX: no limit */
    uint64_t messages;    /* a second, from one connection; beyond it is read later */
};

/* What becomes of a holder that does not stop. */
enum lockd_stuck {
    LOCKD_STUCK_WAIT = 0,       /* it is waited for; others that fit beside it go on */
    LOCKD_STUCK_CHECKPOINT = 1, /* the driver moves its memory out (checkpoint.h) */
};

/* Memory that leaves a program goes to another one as it is (handover.h). */
enum lockd_hand_over {
    LOCKD_HAND_OVER_AUTO = 0, /* yes, unless the driver is to make checkpoints */
    LOCKD_HAND_OVER_YES = 1,
    LOCKD_HAND_OVER_NO = 2,
};

struct lockd_config {
    struct sched_settings settings;
    struct lockd_limits limits;
    uint64_t policy, exclusive, share_ppm, quantum_min_ns, quantum_max_ns; /* as read */
    uint64_t stuck;        /* enum lockd_stuck */
    uint64_t hand_over;    /* enum lockd_hand_over, as read */
    bool hands_over;       /* ... what has become of it */
    uint64_t idle_exit_ns; /* LOCKD_NEVER: a service */
    uint64_t log_level;
    char control_group[LOCKD_NAME_SIZE]; /* its members may change settings; "": nobody more */
    gid_t control_gid; /* of that group; (gid_t)-1: nobody but owner and root */
};

#define LOCKD_CONFIG_KEYS 21

/* Which section of the file a key of lockd_config_table() belongs to. */
const char *lockd_config_section(const char *key);
/* Fills table with the keys, ended by an empty entry. Each is a command-line option as well. */
void lockd_config_table(struct lockd_config *config,
                        struct lockd_option table[LOCKD_CONFIG_KEYS + 1]);
void lockd_config_default(struct lockd_config *config);
/* Puts what was read into settings, and checks what no single key can. 0 or -EINVAL. */
int lockd_config_finish(struct lockd_config *config, struct gs_err *err);
/* Looks the control group up. 0 or -ENOENT. */
int lockd_config_group(struct lockd_config *config, struct gs_err *err);
/* Reads one file's text; path: for messages. 0, or -EINVAL with "path:line: what is allowed";
 * config may then be half changed. */
int lockd_config_text(struct lockd_config *config, const char *path, const char *text,
                      size_t size, struct gs_err *err);
/* Reads path and then path.d's *.conf in the order of their names. A file that is not there is
 * no error unless must_exist. 0 or -errno. */
int lockd_config_files(struct lockd_config *config, const char *path, bool must_exist,
                       struct gs_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: the daemon's log: lines on stderr with a priority that journald understands.
 */
#pragma once

#include <stdint.h>

enum lockd_log_level {
    LOCKD_LOG_ERROR = 3, /* the numbers are syslog's */
    LOCKD_LOG_WARNING = 4,
    LOCKD_LOG_INFO = 6,
    LOCKD_LOG_DEBUG = 7,
};

/* The level whose word has that place in error|warning|info|debug, as options offer them. */
enum lockd_log_level lockd_log_level_at(uint64_t place);
/* Level: messages above it are dropped. */
void lockd_log_open(enum lockd_log_level level);
/* From now on no log line waits for the terminal. To be called once, when the daemon may keep
 * descriptors of its own. */
void lockd_log_serve(void);
void lockd_log(enum lockd_log_level level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

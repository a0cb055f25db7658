/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: messages of the runtime library. It writes to the program's output only if asked
 * (GPUSHARE_LOG), except for the one-line warnings of gs_say_once().
 */
#pragma once

/* Appends "<time> gpushare[pid] text" to GPUSHARE_LOG, a file or "stderr". Nothing without it.
 * errno is kept. Any thread. */
void gs_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Writes one line to stderr, at most once in a process for each *said. For what the user must
 * know to understand what happens: no daemon, nothing routed. GPUSHARE_QUIET=1 silences it. */
void gs_say_once(_Bool *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads the environment; called once by the constructor. */
void gs_log_init(void);

/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: what the runtime library says, and to whom. Never to the program's output unless asked
 * (GPUSHARE_LOG), but for the two one-line warnings of gs_say_once().
 */
#ifndef GS_RUNTIME_BASE_LOG_H
#define GS_RUNTIME_BASE_LOG_H

/* GPUSHARE_LOG=FILE, or "stderr". Appends "<time> gpushare[pid] text". Nothing without it.
 * errno is kept. Any thread. */
void gs_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One line on stderr, at most once per process for each *said. For what the user must know to
 * understand what happens: no daemon, nothing routed. GPUSHARE_QUIET=1 silences it. */
void gs_say_once(_Bool *said, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads the environment; called once by the constructor. */
void gs_log_init(void);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * ask.h: gpusharectl's side of the connection to the daemon, the texts of errors, and the exit
 * codes for them.
 */
#pragma once

#include "lockd/base/clock.h"
#include "lockd/ctl/ctl.h"

#include <stdint.h>

/* Connects to the daemon; -ENOENT: there is none. The reason of a failure is in ctl->err. */
int ctl_connect(struct ctl *ctl);
/* The path at which a daemon of this user would listen, while there is none. */
const char *ctl_own_place(const struct ctl *ctl);
/* Receives the next message, and checks it. 0 or -errno. */
int ctl_receive(struct ctl *ctl, int fd, union lockd_message *message);
/* Sends one request and takes the answer to its END. 0; -ENOENT: no daemon (in ctl->err);
 * -errno. */
int ctl_ask(struct ctl *ctl, const void *request, size_t size, struct ctl_answer *answer);
/* Requests the whole status. Returns as ctl_ask() does. */
int ctl_ask_status(struct ctl *ctl, struct ctl_answer *answer);
void ctl_answer_deinit(struct ctl_answer *answer);
/* Prints a refusal and returns the exit code for it. */
enum ctl_exit ctl_refused(const struct gs_wire_end *end);

/* Prints ctl->err and returns the exit code for it. */
enum ctl_exit ctl_fail(const struct ctl *ctl);
/* Flushes the output. Returns code, unless it could not be written. */
enum ctl_exit ctl_done(enum ctl_exit code);
/* "usage: gpusharectl NAME [--OPTION] ARGUMENTS" */
void ctl_print_usage(const struct ctl_command *command, FILE *out);
/* Prints an error in the command line, and the usage line of the command that runs. */
enum ctl_exit ctl_usage(const struct ctl *ctl, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

struct ctl_rate {
    double out, in; /* bytes a second */
    double gpu;     /* of the time it ran: 0 to 1 */
    double calls;   /* a second */
    uint64_t turns; /* switches that began meanwhile */
};

/* The number of earlier programs in the answer that look the same: a process with two
 * connections, or two processes in pid namespaces that we cannot see into. */
unsigned ctl_twin(const struct ctl_answer *answer, size_t index);

/* The rates of the program at that index of answer, since `before`. elapsed_ns: between the
 * answers. A program that is new, or whose figures have decreased (another process with the
 * same id), has no rates yet: all are 0. */
struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct ctl_answer *answer,
                            size_t index, uint64_t elapsed_ns);

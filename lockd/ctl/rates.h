/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.h: the bytes that a program moved and the time that it ran, between two answers.
 */
#ifndef GS_LOCKD_CTL_RATES_H
#define GS_LOCKD_CTL_RATES_H

#include "lockd/ctl/ctl.h"

#include <stdint.h>

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
 * answers. A program that is new, or whose figures have decreased (another process with the same
 * id), has no rates yet: all are 0. */
struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct ctl_answer *answer,
                            size_t index, uint64_t elapsed_ns);

#endif

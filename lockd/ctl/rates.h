/* SPDX-License-Identifier: Apache-2.0
 *
 * rates.h: how much a program moved and ran between two looks at it.
 */
#ifndef GS_LOCKD_CTL_RATES_H
#define GS_LOCKD_CTL_RATES_H

#include "lockd/ctl/ctl.h"

#include <stdint.h>

struct ctl_rate {
    double out, in; /* bytes a second */
    double gpu;     /* of the time it ran: 0 to 1 */
    double calls;   /* a second */
    uint64_t turns; /* begun meanwhile */
};

/* How many of the answer's earlier programs look the same: one process with two connections, or
 * two in pid namespaces that we cannot see into. */
unsigned ctl_twin(const struct ctl_answer *answer, size_t index);

/* Of the program at that index of answer, since `before`. elapsed_ns: between the answers. A
 * program that was not there before, or whose figures went back (another one with its process
 * id), has no rates yet: all 0. */
struct ctl_rate ctl_rate_of(const struct ctl_answer *before, const struct ctl_answer *answer,
                            size_t index, uint64_t elapsed_ns);

#endif

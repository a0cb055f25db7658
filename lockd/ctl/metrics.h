/* SPDX-License-Identifier: Apache-2.0
 *
 * metrics.h: the status in Prometheus' text format.
 */
#pragma once

#include "lockd/ctl/ctl.h"

/* Writes all families; answer->running false: gpushare_up 0, and the other families without
 * series. */
void ctl_metrics_write(FILE *out, const struct ctl_answer *answer);

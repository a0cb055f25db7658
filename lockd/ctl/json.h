/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h: the daemon's answer as JSON (docs/protocol.md).
 */
#pragma once

#include "lockd/ctl/ctl.h"

/* The one option of most commands; its value is a bool. */
extern const struct gs_option ctl_json_option[];

struct json_t;
/* A JSON string of any bytes. */
struct json_t *ctl_json_text(const char *bytes);
/* Makes one JSON object of the answer. NULL: no memory. */
struct json_t *ctl_json_status(const struct ctl *ctl, const struct ctl_answer *answer);
/* Prints the object, and frees it. 0 or -ENOMEM. */
int ctl_json_put(struct json_t *root, size_t flags);
/* Prints it on one line, with the rates since `before`. */
int ctl_json_top(const struct ctl *ctl, const struct ctl_answer *now,
                 const struct ctl_answer *before, uint64_t elapsed_ns);

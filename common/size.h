/* SPDX-License-Identifier: Apache-2.0
 *
 * size.h: byte counts as people write and read them.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Reads "16GiB", "16G", "512MiB", "1.5GB", "4096": binary units with or without i (K M G T),
 * decimal with a B and no i. 0, or -EINVAL when it is no size, -ERANGE when it does not fit
 * into 64 bits; *bytes is then untouched. */
int gs_size_parse(const char *text, uint64_t *bytes);

/* Writes bytes as "98.0 GiB" and returns buffer. */
char *gs_size_format(uint64_t bytes, char *buffer, size_t size);

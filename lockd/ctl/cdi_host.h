/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_host.h: a specification made of what this host has.
 */
#pragma once

#include "common/err.h"

#include <jansson.h>

/* Makes what cdi_source_read() reads from this host: device nodes, the driver's libraries and
 * nvidia-smi, at the same paths in the container. root: the folder at which this process sees the
 * host's files (a container's mount), "": its own. NULL: no driver, no devices. */
json_t *cdi_host_read(const char *root, struct gs_err *err);

/* Adds devices by UUID where the source has only indices. */
void cdi_host_name_devices(json_t *spec);

/* A read-only mount of a specification. */
json_t *cdi_mount_json(const char *host, const char *container);

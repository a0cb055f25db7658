/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_source.h: the specification that NVIDIA's toolkit has made.
 */
#ifndef GS_LOCKD_CTL_CDI_SOURCE_H
#define GS_LOCKD_CTL_CDI_SOURCE_H

#include "common/err.h"

#include <jansson.h>

/* Reads NVIDIA's specification (kind nvidia.com/gpu): from that file or, if file is NULL, from
 * the folders that runtimes read. NULL: there is none (then err is empty), or it cannot be read. */
json_t *cdi_source_read(const char *file, struct gs_err *err);

#endif

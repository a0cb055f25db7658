/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_make.h: gpushare's specification of the Container Device Interface.
 */
#ifndef GS_LOCKD_CTL_CDI_MAKE_H
#define GS_LOCKD_CTL_CDI_MAKE_H

#include "common/err.h"

#include <jansson.h>

/* The specification that NVIDIA's toolkit has made. */

/* Reads NVIDIA's specification (kind nvidia.com/gpu): from that file or, if file is NULL,
 * from the folders that runtimes read. NULL: there is none (then err is empty), or it
 * cannot be read. */
json_t *cdi_source_read(const char *file, struct gs_err *err);

/* The parts to add to the source. */
struct cdi_place {
    const char *door;    /* the folder of the door, here and in the container */
    const char *sockets; /* the folder of the programs' socket on the host */
    const char *version; /* version of the specification */
};

/* Changes a source into gpushare's specification: the door replaces each libcuda, with the
 * driver's library behind it, and the socket's folder is mounted. 0 or -errno. */
int cdi_make(json_t *spec, const struct cdi_place *place, struct gs_err *err);

#endif

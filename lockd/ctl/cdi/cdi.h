/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi.h: what the files of `gpusharectl cdi` share: a specification of the Container Device
 * Interface as JSON (CNCF, "Container Device Interface Specification").
 */
#ifndef GS_LOCKD_CTL_CDI_CDI_H
#define GS_LOCKD_CTL_CDI_CDI_H

#include <jansson.h>

#include "common/err.h"

/* The text of a specification, as nvidia-ctk writes YAML: block mappings and sequences, plain and
 * quoted scalars. NULL: it is something else, and err says in which line. */
json_t *cdi_yaml_parse(const char *text, struct gs_err *err);

/* The specification of the driver's maker (kind nvidia.com/gpu): from that file, or, if file is
 * NULL, from the folders where runtimes look. NULL: there is none (err is empty then), or it
 * cannot be read. */
json_t *cdi_source_read(const char *file, struct gs_err *err);

/* The same made of what this host has: device nodes, the driver's libraries and nvidia-smi, at
 * the same paths in the container. root: the folder at which this process sees the host's files
 * (a container's mount), "": its own. NULL: no driver, no devices. */
json_t *cdi_host_read(const char *root, struct gs_err *err);

/* Adds devices by UUID where the source has the index only. */
void cdi_host_name_devices(json_t *spec);

/* The parts that are added to the source. */
struct cdi_place {
    const char *door;    /* the folder of the door, here and in the container */
    const char *sockets; /* the folder of the programs' socket on the host */
    const char *version; /* of the specification */
};

/* Changes a source into gpushare's specification: the door in the place of each libcuda, the
 * driver's library behind it, the socket's folder. 0 or -errno. */
int cdi_make(json_t *spec, const struct cdi_place *place, struct gs_err *err);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi.h: functions on a specification of the Container Device Interface, as JSON (CNCF, "Container
 * Device Interface Specification"), for the files of `gpusharectl cdi`.
 */
#ifndef GS_LOCKD_CTL_CDI_CDI_H
#define GS_LOCKD_CTL_CDI_CDI_H

#include <jansson.h>

#include "common/err.h"

/* Parses the text of a specification in the subset of YAML that nvidia-ctk writes: block
 * mappings and sequences, plain and quoted scalars. NULL: the text is not of this form; err
 * names the line. */
json_t *cdi_yaml_parse(const char *text, struct gs_err *err);

/* Reads NVIDIA's specification (kind nvidia.com/gpu): from that file or, if file is NULL, from
 * the folders that runtimes read. NULL: there is none (then err is empty), or it cannot be read. */
json_t *cdi_source_read(const char *file, struct gs_err *err);

/* Makes the same from this host: device nodes, the driver's libraries and nvidia-smi, at the
 * same paths in the container. root: the folder at which this process sees the host's files (a
 * container's mount), "": its own. NULL: no driver, no devices. */
json_t *cdi_host_read(const char *root, struct gs_err *err);

/* Adds devices by UUID where the source has only indices. */
void cdi_host_name_devices(json_t *spec);

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

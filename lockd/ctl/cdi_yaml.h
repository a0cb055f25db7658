/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_yaml.h: reads a specification that is written in YAML.
 */
#pragma once

#include "common/err.h"

#include <jansson.h>

/* Parses the text of a specification in the subset of YAML that nvidia-ctk writes: block
 * mappings and sequences, plain and quoted scalars. NULL: the text is not of this form; err
 * names the line. */
json_t *cdi_yaml_parse(const char *text, struct gs_err *err);

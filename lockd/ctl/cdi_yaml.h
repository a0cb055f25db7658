/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_yaml.h: reads a specification that is written in YAML.
 */
#pragma once

#include "common/err.h"

#include <jansson.h>

/* NULL: the text is no YAML, or has a form that is refused; err names the line. */
json_t *cdi_yaml_parse(const char *text, struct gs_err *err);

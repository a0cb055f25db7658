/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_source.c: finds the specification that nvidia-ctk has written, in JSON or YAML.
 */

#include <errno.h>
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/fd.h"
#include "lockd/ctl/cdi_source.h"
#include "lockd/ctl/cdi_yaml.h"

#define TEXT_MOST (4u << 20) /* bytes; nvidia-ctk writes some tens of KiB */

static char *read_text(const char *path, struct gs_err *err)
{
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(TEXT_MOST + 1) : NULL;
    size_t size = 0;

    if (file == NULL) {
        gs_err_errno(err, -errno, "%.300s", path);
        return NULL;
    }
    if (text != NULL)
        size = fread(text, 1, TEXT_MOST + 1, file);
    if (text == NULL || ferror(file) != 0 || size > TEXT_MOST) {
        gs_err_set(err, -EIO, "%.300s cannot be read, or is too large", path);
        free(text);
        text = NULL;
    } else {
        text[size] = '\0';
    }
    fclose(file);
    return text;
}

static json_t *parse_file(const char *path, struct gs_err *err)
{
    GS_FREE char *text = read_text(path, err);
    struct gs_err why = {0};
    json_error_t wrong;
    json_t *spec;

    if (text == NULL)
        return NULL;
    if (text[strspn(text, " \t\r\n")] == '{') {
        spec = json_loads(text, 0, &wrong);
        if (spec == NULL)
            gs_err_set(err, -EINVAL, "%.200s, line %d: %.160s", path, wrong.line, wrong.text);
        return spec;
    }
    spec = cdi_yaml_parse(text, &why);
    if (spec == NULL)
        gs_err_set(err, -EINVAL, "%.200s, %.200s", path,
                   why.text[0] != '\0' ? why.text : "line 1: not UTF-8 text");
    return spec;
}

static bool is_of_maker(const json_t *spec)
{
    const char *kind = json_string_value(json_object_get(spec, "kind"));

    return kind != NULL && strcmp(kind, "nvidia.com/gpu") == 0;
}

json_t *cdi_source_read(const char *file, struct gs_err *err)
{
    static const char *const patterns[] = {"/etc/cdi/*.json", "/etc/cdi/*.yaml",
                                           "/var/run/cdi/*.json", "/var/run/cdi/*.yaml"};
    json_t *found = file != NULL ? parse_file(file, err) : NULL;

    if (file != NULL && found != NULL && !is_of_maker(found)) {
        gs_err_set(err, -EINVAL, "%.300s is not a specification of kind nvidia.com/gpu", file);
        json_decref(found);
        return NULL;
    }
    for (size_t i = 0; file == NULL && found == NULL && i < sizeof patterns / sizeof *patterns;
         i++) {
        glob_t files = {0};

        if (glob(patterns[i], 0, NULL, &files) == 0) {
            for (size_t k = 0; k < files.gl_pathc && found == NULL; k++) {
                struct gs_err other = {0}; /* files of other devices may have any contents */

                found = parse_file(files.gl_pathv[k], &other);
                if (found != NULL && !is_of_maker(found)) {
                    json_decref(found);
                    found = NULL;
                }
            }
        }
        globfree(&files);
    }
    return found;
}

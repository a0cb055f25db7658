/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_make.c: finds the specification that nvidia-ctk has written, and changes it into gpushare's.
 */
#include "lockd/ctl/cdi_make.h"
#include "common/place.h"
#include "common/fd.h"
#include "lockd/ctl/cdi_yaml.h"

#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Finds the specification that nvidia-ctk has written, in JSON or YAML. */

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

static json_t *read_only_mount(const char *host, const char *container)
{
    return json_pack("{s:s, s:s, s:[s, s, s, s]}", "hostPath", host, "containerPath", container,
                     "options", "ro", "nosuid", "nodev", "bind");
}

static bool is_libcuda(const char *path)
{
    const char *slash = path != NULL ? strrchr(path, '/') : NULL;

    return slash != NULL &&
           (strncmp(slash, "/libcuda.so.", 12) == 0 || strcmp(slash, "/libcuda.so") == 0);
}

/* A 32-bit library stays as it is: gpushare does not support its programs. */
static bool is_32_bits(const char *path)
{
    FILE *file = fopen(path, "re");
    unsigned char start[5] = {0};
    const bool read = file != NULL && fread(start, 1, sizeof start, file) == sizeof start;

    if (file != NULL)
        fclose(file);
    return read && memcmp(start, "\177ELF\001", 5) == 0;
}

/* Mounts the door over each libcuda. Returns the driver's own file, or NULL. */
static char *replace_libcuda(json_t *mounts, const char *door)
{
    char *driver = NULL;
    json_t *mount;
    size_t i;

    json_array_foreach(mounts, i, mount)
    {
        const char *host = json_string_value(json_object_get(mount, "hostPath"));

        if (host == NULL ||
            !is_libcuda(json_string_value(json_object_get(mount, "containerPath"))) ||
            is_32_bits(host))
            continue;
        if (driver == NULL)
            driver = realpath(host, NULL);
        if (driver == NULL)
            driver = strdup(host);
        json_object_set_new(mount, "hostPath", json_string(door));
    }
    return driver;
}

/* The hook that prefers an image's compat package would bypass the door. */
static void drop_compat_hook(json_t *hooks)
{
    json_t *hook, *word;
    size_t i, k;

    for (i = json_array_size(hooks); i-- > 0;) {
        bool compat = false;

        hook = json_array_get(hooks, i);
        json_array_foreach(json_object_get(hook, "args"), k, word)
        {
            const char *text = json_string_value(word);

            compat |= text != NULL && strcmp(text, "enable-cuda-compat") == 0;
        }
        if (compat)
            json_array_remove(hooks, i);
    }
}

/* Adds the group of the socket's folder, whose members may connect. */
static void add_group(json_t *edits, const char *sockets)
{
    struct stat st;

    if (stat(sockets, &st) == 0 && st.st_gid != 0)
        json_object_set_new(edits, "additionalGids", json_pack("[I]", (json_int_t)st.st_gid));
}

static bool knows_groups(const char *version)
{
    char *rest;
    const long major = strtol(version, &rest, 10);

    return major > 0 || (*rest == '.' && strtol(rest + 1, NULL, 10) >= 7);
}

int cdi_make(json_t *spec, const struct cdi_place *place, struct gs_err *err)
{
    json_t *edits = json_object_get(spec, "containerEdits");
    json_t *mounts = json_object_get(edits, "mounts");
    char door[PATH_MAX], real[PATH_MAX];
    char *driver;

    if (!json_is_array(json_object_get(spec, "devices")) || !json_is_array(mounts))
        return gs_err_set(err, -EINVAL, "the driver's specification has no devices or mounts");
    if (snprintf(door, sizeof door, "%s/" GS_DOOR_NAME, place->door) >= (int)sizeof door ||
        snprintf(real, sizeof real, "%s/" GS_DOOR_REAL, place->door) >= (int)sizeof real)
        return gs_err_set(err, -ENAMETOOLONG, "%.300s: the path is too long", place->door);
    if (access(door, R_OK) != 0)
        return gs_err_set(
            err, -ENOENT,
            "no door in %.300s: install gpushare completely, or name a folder that "
            "gpushare-door --stage made with --door",
            place->door);
    driver = replace_libcuda(mounts, door);
    if (driver == NULL)
        return gs_err_set(err, -ENOENT,
                          "the driver's specification mounts no libcuda.so: the driver is not "
                          "installed, or was not when nvidia-ctk wrote it");
    json_array_append_new(mounts, read_only_mount(driver, real));
    free(driver);
    json_array_append_new(mounts, read_only_mount(place->sockets, GS_SYSTEM_FOLDER));
    drop_compat_hook(json_object_get(edits, "hooks"));
    if (knows_groups(place->version))
        add_group(edits, place->sockets);
    json_object_set_new(spec, "cdiVersion", json_string(place->version));
    json_object_set_new(spec, "kind", json_string("gpushare.dev/gpu"));
    json_object_del(spec, "annotations");
    return 0;
}

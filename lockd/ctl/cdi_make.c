/* SPDX-License-Identifier: Apache-2.0
 *
 * cdi_make.c: changes NVIDIA's specification into gpushare's. In the container the door has the
 * path of libcuda, so that the hooks that make links and the loader's cache find it; the driver's
 * own library is in a folder beside it that ldconfig does not read.
 */

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/paths.h"
#include "lockd/ctl/cdi_make.h"

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

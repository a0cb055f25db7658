/* SPDX-License-Identifier: Apache-2.0
 *
 * stage.h: a folder with the door and the driver's library behind it.
 */
#pragma once

#include <limits.h>

#include "common/err.h"

/* A staged folder: the paths of its two files. */
struct gs_stage {
    char folder[PATH_MAX];
    char door[PATH_MAX], real[PATH_MAX];
};

/* Makes the folder (not its parents) if it is not there, and puts a door in it that looks for
 * the driver's library there. driver: the library that is copied into it; NULL: an empty file
 * takes its place, to be mounted on. Processes that use an older door there keep it. 0 or
 * -errno. */
int gs_stage_make(struct gs_stage *stage, const char *folder, const char *door,
                  const char *driver, struct gs_err *err);

/* Makes a folder for this user's stage: below /run for root, below the user's run-time folder or
 * /tmp for others. It must belong to this user alone. folder has PATH_MAX bytes. */
int gs_stage_place(char *folder, struct gs_err *err);

/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_wheel.c: checks a Python environment in which pip has installed gpushare. The package
 * alone changes nothing: the interpreter must be prepared as well, and must be restored before the
 * package is removed. No state.
 */
#include "lockd/ctl/doctor/doctor_file.h"
#include "lockd/ctl/doctor/doctor_wheel.h"
#include "lockd/ctl/doctor/findings.h"

#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The environment in which this program is installed, else the active environment. False: there is none. */
static bool find_environment(char folder[PATH_MAX])
{
    const char *active = getenv("VIRTUAL_ENV");
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    char config[PATH_MAX + 16], *slash;

    folder[length > 0 ? length : 0] = '\0';
    while ((slash = strrchr(folder, '/')) != NULL) {
        *slash = '\0';
        snprintf(config, sizeof config, "%s/pyvenv.cfg", folder);
        if (access(config, F_OK) == 0)
            return true;
    }
    return active != NULL && active[0] == '/' &&
           snprintf(folder, PATH_MAX, "%s", active) < PATH_MAX;
}

static bool has_package(const char *folder)
{
    char pattern[PATH_MAX + 64];
    glob_t found = {0};
    bool has;

    snprintf(pattern, sizeof pattern,
             "%s/lib/python3*/site-packages/gpushare_patch/__init__.py", folder);
    has = glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc != 0;
    globfree(&found);
    return has;
}

void doctor_wheel(struct doctor *doctor)
{
    char folder[PATH_MAX], python[PATH_MAX + 16], quoted[DOCTOR_QUOTED];
    enum doctor_patched patched;

    if (!find_environment(folder))
        return;
    snprintf(python, sizeof python, "%s/bin/python3", folder);
    patched = doctor_patched(python);
    if (patched == DOCTOR_PATCHED) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_OK, NULL,
                   "the Python environment %s is prepared", folder);
    } else if (patched == DOCTOR_ORPHANED) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_FAIL,
                   "restore it, or install gpushare again",
                   "the Python environment %s is prepared, but its gpushare was removed: its "
                   "interpreter does not start",
                   folder);
        doctor_command(doctor, "gpushare-patch --restore %s", doctor_quote(python, quoted));
    } else if (has_package(folder)) {
        doctor_add(doctor, "wheel.enabled", DOCTOR_WARN,
                   "enable it once, then restart programs that are already running",
                   "gpushare is installed in the Python environment %s, but not enabled there",
                   folder);
        doctor_command(doctor, "%s -m gpushare_patch enable", doctor_quote(python, quoted));
    }
}

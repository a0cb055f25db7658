/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor_libraries.c: finds the libraries that a file needs and that the loader does not find. It
 * asks the loader itself, as ldd does, but by a trusted path: this runs no code of the file. No
 * state.
 */
#include "lockd/ctl/doctor/doctor_libraries.h"
#include "lockd/ctl/doctor/doctor_tool.h"
#include "lockd/ctl/doctor/findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined __aarch64__
#define LOADER "/lib/ld-linux-aarch64.so.1"
#else
#define LOADER "/lib64/ld-linux-x86-64.so.2"
#endif

#define LIST_MAX 65536
#define TOOLKIT  "/usr/local/cuda/lib64"

static void say_missing(struct doctor *doctor, const char *file, const char *name)
{
    char quoted[DOCTOR_QUOTED], path[512];

    snprintf(path, sizeof path, TOOLKIT "/%s", name);
    doctor_add(doctor, "file.libraries", DOCTOR_FAIL,
               strncmp(name, "libcuda.so", 10) == 0
                   ? "it belongs to NVIDIA's driver; LD_LIBRARY_PATH or ldconfig must find it"
                   : "install it, or name its folder in LD_LIBRARY_PATH",
               "%s needs %s, which is not found: it will not start", file, name);
    if (strncmp(name, "libgpushare.so", 14) == 0)
        doctor_command(doctor, "gpushare-patch %s", doctor_quote(file, quoted));
    else if (strncmp(name, "libcuda.so", 10) == 0)
        doctor_command(doctor, "ldconfig -p | grep libcuda");
    else if (access(path, R_OK) == 0)
        doctor_command(doctor, "export LD_LIBRARY_PATH=" TOOLKIT
                               "${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}");
    else
        doctor_command(doctor, "find / -name %s -not -path '/proc/*' 2>/dev/null",
                       doctor_quote(name, quoted));
}

void doctor_libraries(struct doctor *doctor, const char *file)
{
    char env[] = "env", trace[] = "LD_TRACE_LOADED_OBJECTS=1", loader[] = LOADER, path[4096];
    char *argv[] = {env, trace, loader, path, NULL};
    char *text = malloc(LIST_MAX), *save = NULL;

    /* the loader would search for a name without a slash */
    if (text != NULL &&
        snprintf(path, sizeof path, "%s%s", strchr(file, '/') ? "" : "./", file) <
            (int)sizeof path &&
        doctor_tool_run(argv, STDOUT_FILENO, text, LIST_MAX) >= 0) {
        for (char *line = strtok_r(text, "\n", &save); line != NULL;
             line = strtok_r(NULL, "\n", &save)) {
            char *arrow = strstr(line, " => not found");

            if (arrow == NULL)
                continue;
            *arrow = '\0';
            say_missing(doctor, file, line + strspn(line, " \t"));
        }
    }
    free(text);
}

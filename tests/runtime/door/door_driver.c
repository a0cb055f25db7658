/* SPDX-License-Identifier: Apache-2.0
 *
 * door_driver.c: a driver that has next to nothing but names that the table of driver functions
 * does not have: a debugger's function and variable, and a function of a later release.
 */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED int cuInit(unsigned flags);
EXPORTED int cudbgGetAPI(int major, int minor, int revision, void *api);
EXPORTED int cuOfALaterRelease(void);
EXPORTED int cudbgSessionId = 7;

int cuInit(unsigned flags)
{
    return flags == 0 ? 0 : 1;
}

int cudbgGetAPI(int major, int minor, int revision, void *api)
{
    return api == &cudbgSessionId ? major + minor + revision : -1;
}

int cuOfALaterRelease(void)
{
    return 77;
}

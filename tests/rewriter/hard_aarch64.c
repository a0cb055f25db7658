/* SPDX-License-Identifier: Apache-2.0
 *
 * hard_aarch64.c: an aarch64 library that needs no header files, for patching on another
 * machine.
 */
void *dlsym(void *handle, const char *name);
int hard_look(void);
extern int *const hard_relocated;
static int zeroed[20000];
int *const hard_relocated = &zeroed[7]; /* so that there is a DT_RELACOUNT */

int hard_look(void)
{
    zeroed[7] = dlsym((void *)0, "puts") != (void *)0;
    return zeroed[7];
}

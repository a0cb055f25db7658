/* SPDX-License-Identifier: Apache-2.0
 *
 * hard_user.c: loads a library built from hard.c and lets it look at itself.
 */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*look)(void) = handle != NULL ? (int (*)(void))dlsym(handle, "hard_look") : NULL;

    if (look == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
    return look();
}

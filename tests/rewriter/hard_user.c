/* SPDX-License-Identifier: Apache-2.0
 *
 * hard_user.c: loads a library built from hard.c and lets it look at itself. With a second
 * argument it asks for that version of the entry.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *handle = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    int (*look)(void) = handle == NULL ? NULL
                        : argc > 2     ? (int (*)(void))dlvsym(handle, "hard_look", argv[2])
                                       : (int (*)(void))dlsym(handle, "hard_look");

    if (look == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 9;
    }
    return look();
}

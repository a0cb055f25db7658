/* SPDX-License-Identifier: Apache-2.0
 *
 * escape.c: a program whose use of CUDA no door can see: in a namespace of its own (dlmopen),
 * or in a library that prefers its own symbols (RTLD_DEEPBIND). test_routing.py patches it and looks
 * for the one line and the note that say so.      escape namespace | deepbind LIBRARY | none
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int use_handle(void *handle)
{
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(handle, "cuInit");
    int (*count)(int *) = (int (*)(int *))dlsym(handle, "cuDeviceGetCount");
    int devices = 0;

    if (init == NULL || count == NULL || init(0) != 0 || count(&devices) != 0)
        return 1;
    printf("%d devices\n", devices);
    return devices < 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "none") == 0)
        return 0;
    if (argc == 2 && strcmp(argv[1], "namespace") == 0) {
        void *handle = dlmopen(LM_ID_NEWLM, "libcuda.so.1", RTLD_NOW);

        return handle == NULL || use_handle(handle);
    }
    if (argc == 3 && strcmp(argv[1], "deepbind") == 0) {
        void *library = dlopen(argv[2], RTLD_NOW | RTLD_DEEPBIND);
        int (*run)(void) =
            library != NULL ? (int (*)(void))dlsym(library, "deepbind_run") : NULL;

        return run == NULL || run();
    }
    return 2;
}

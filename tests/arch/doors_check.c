/* SPDX-License-Identifier: Apache-2.0
 *
 * doors_check.c: the doors on whatever architecture this was built for: names that are not the
 * driver's reach libc with the caller's identity, the driver's reach the wrappers. Linked with
 * libgpushare first; the driver is bench/fake_driver.c.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failures;

static void check_fact(int ok, const char *what)
{
    printf("%s %s\n", ok ? "ok" : "FAILED", what);
    failures += !ok;
}

static int is_in(const void *address, const char *object)
{
    Dl_info info;

    return address != NULL && dladdr(address, &info) != 0 &&
           strstr(info.dli_fname, object) != NULL;
}

/* defined here as well as in libc: RTLD_NEXT, seen from here, is libc's */
int rand(void)
{
    return 42;
}

int main(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "rand");
    const char *error;

    check_fact(driver != NULL, "the driver is there");
    check_fact(dlsym(RTLD_DEFAULT, "malloc") == (void *)malloc, "RTLD_DEFAULT of a libc name");
    check_fact(next != NULL && next != rand && is_in((void *)next, "libc.so"),
               "RTLD_NEXT is the caller's next");
    check_fact(dlsym(RTLD_DEFAULT, "cuckoo") == NULL && (error = dlerror()) != NULL &&
                   strstr(error, "cuckoo") != NULL,
               "a missing name that begins with cu: libc's own message");
    check_fact(is_in(dlsym(driver, "cuStreamWaitEvent"), "libgpushare"),
               "a gated name is ours");
    check_fact(is_in(dlsym(driver, "cuDeviceGetName"), "libcuda"),
               "a name that passes is the driver's");
    check_fact(dlsym(driver, "cuLaunchKernel") == NULL && (error = dlerror()) != NULL &&
                   strstr(error, "cuLaunchKernel"),
               "a name that this driver has not");
    check_fact(dlvsym(RTLD_DEFAULT, "malloc", "GLIBC_2.0.nonsense") == NULL &&
                   dlerror() != NULL,
               "dlvsym of a wrong version");
#ifdef __x86_64__
    check_fact(dlvsym(RTLD_DEFAULT, "getppid", "GLIBC_2.2.5") == (void *)getppid, "dlvsym");
#else
    check_fact(dlvsym(RTLD_DEFAULT, "getppid", "GLIBC_2.17") == (void *)getppid, "dlvsym");
#endif
    printf("%d failed\n", failures);
    return failures != 0;
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * stub.c: the library that stays where libgpushare.so.1 was, for patched programs that were not
 * restored when gpushare was removed. It has the same SONAME, exports the same names, and passes
 * every call on to the driver. It says so once on standard error, unless GPUSHARE_QUIET=1.
 *
 * A function of the driver is looked up when it is called for the first time; several threads
 * that do so at once write the same address. No other state.
 */
#include "runtime/base/libc_symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define NOT_FOUND 500 /* CUDA_ERROR_NOT_FOUND */

/* gpushare-patch knows the file by this text (rewriter/undo.c). */
static const char mark[] = "gpushare-stub-of-a-removed-library";

static const char *const names[] = {
#define GS_STUB(name) #name,
#define GS_STUB_OURS(name)
#include "names.h"
#undef GS_STUB
#undef GS_STUB_OURS
};

/* Called by trampolines_*.S, with the slots of all names in their order. */
void *gs_stub_resolve(size_t index, void **slots);

static int answer_missing(void)
{
    return NOT_FOUND;
}

static void *open_driver(void)
{
    void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

    if (handle == NULL)
        handle = dlopen("libcuda.so", RTLD_NOW | RTLD_NOLOAD);
    return handle != NULL ? handle : dlopen("libcuda.so.1", RTLD_NOW);
}

void *gs_stub_resolve(size_t index, void **slots)
{
    void *handle = open_driver(), *found = NULL;

    if (handle != NULL)
        found = gs_libc_dlsym(handle, names[index]);
    if (found == NULL)
        return (void *)answer_missing; /* looked up again the next time */
    __atomic_store_n(&slots[index], found, __ATOMIC_RELAXED);
    return found;
}

/* The library's own functions have nothing to pass to. */
#define GS_STUB(name)
#define GS_STUB_OURS(name)                                                                     \
    __attribute__((visibility("default"))) int name(void);                                     \
    int name(void)                                                                             \
    {                                                                                          \
        return -ENOSYS;                                                                        \
    }
#include "names.h"
#undef GS_STUB
#undef GS_STUB_OURS

static void say_text(const char *text)
{
    ssize_t n = write(STDERR_FILENO, text, strlen(text));

    (void)n;
}

/* getenv() does not work yet: this runs before libc (-z initfirst). */
static bool is_quiet(char **environment)
{
    for (; environment != NULL && *environment != NULL; environment++)
        if (strcmp(*environment, "GPUSHARE_QUIET=1") == 0)
            return true;
    return false;
}

__attribute__((constructor)) static void start_stub(int argc, char **argv, char **environment)
{
    Dl_info info;

    (void)argc;
    (void)argv;
    gs_libc_symbols_init();
    if (is_quiet(environment) || dladdr(mark, &info) == 0)
        return;
    say_text(
        "gpushare: gpushare was removed, and this program is still patched: it runs without "
        "sharing (");
    say_text(info.dli_fname);
    say_text(" is a stub; gpushare-patch --restore gives the program back)\n");
}

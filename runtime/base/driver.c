/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c: owns the pointers into the real driver.
 *
 * Invariant: gs_driver is written before `loaded` is released and never after. Loading may
 * happen on any thread; two threads that load at the same time write the same values, so no
 * lock is held while the loader runs.
 */
#include "runtime/base/driver.h"

#include <dlfcn.h>
#include <link.h>

#include "runtime/base/others.h"

struct gs_driver gs_driver;

#define GS_API(symbol, base, since, variant, family, action) #symbol,
static const char *const names[GS_ROW_COUNT] = {
#include "wrap/driver_api.def"
};

#define GS_API(symbol, base, since, variant, family, action) offsetof(struct gs_driver, symbol),
static const uint16_t offsets[GS_ROW_COUNT] = {
#include "wrap/driver_api.def"
};

static struct {
    _Atomic(bool) loaded;          /* release: pairs with the acquire in gs_driver_load */
    uintptr_t low, high;           /* address range of the object; written before loaded */
    uintptr_t door_low, door_high; /* the same of the door in front of it; 0: there is none */
    const struct link_map *object; /* or NULL */
} library;

static CUresult answer_missing(void)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

struct range_query {
    uintptr_t address, low, high;
};

static int find_range(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct range_query *query = argument;
    uintptr_t low = UINTPTR_MAX, high = 0;

    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];

        if (segment->p_type != PT_LOAD)
            continue;
        if (info->dlpi_addr + segment->p_vaddr < low)
            low = info->dlpi_addr + segment->p_vaddr;
        if (info->dlpi_addr + segment->p_vaddr + segment->p_memsz > high)
            high = info->dlpi_addr + segment->p_vaddr + segment->p_memsz;
    }
    if (query->address < low || query->address >= high)
        return 0;
    query->low = low;
    query->high = high;
    return 1;
}

/* Reads the object's own table, which is ten times as fast as asking the loader for each
 * function. */
static void *find_function(void *handle, const struct link_map *object, const char *name)
{
    void *function = gs_others_first(name); /* the driver that the first copy uses */

    if (function == NULL && object != NULL)
        function = gs_object_function(object, name);
    if (function == NULL)
        function = gs_libc_dlsym(handle, name);
    return function != NULL ? function : (void *)answer_missing;
}

/* The driver behind a library of that name, which may be our door (calls/door.c). Functions
 * that the program finds in the door count as found in the driver. */
static void *look_behind(void *handle, struct range_query *door)
{
    void *(*driver_of_door)(void) = NULL;
    void *const found = gs_libc_dlsym(handle, "gpushare_door_driver"), *driver;

    memcpy(&driver_of_door, &found, sizeof found);
    driver = found != NULL ? driver_of_door() : NULL;
    if (driver == NULL)
        return handle;
    door->address = (uintptr_t)found;
    dl_iterate_phdr(find_range, door);
    return driver;
}

/* The program may have set variables of its own environment since it was started, as it may set
 * CUDA_VISIBLE_DEVICES before its first call. */
static void read_settings_again(void)
{
    gs_log_init();
    gs_config_read(&gs_runtime.config, true);
}

static pthread_once_t set_up = PTHREAD_ONCE_INIT;

static bool fill_table(void *handle)
{
    struct range_query query = {0}, door = {0};
    char *const base = (char *)&gs_driver;
    struct link_map *object = NULL;

    handle = look_behind(handle, &door);
    query.address = (uintptr_t)gs_libc_dlsym(handle, "cuInit");
    if (query.address == 0 || dl_iterate_phdr(find_range, &query) == 0)
        return false;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &object) != 0)
        object = NULL;
    for (size_t i = 0; i < GS_ROW_COUNT; i++) {
        void *const function = find_function(handle, object, names[i]);

        memcpy(base + offsets[i], &function, sizeof function);
    }
    library.low = query.low;
    library.high = query.high;
    library.door_low = door.low;
    library.door_high = door.high;
    library.object = object;
    pthread_once(&set_up, read_settings_again);
    atomic_store_explicit(&library.loaded, true, memory_order_release);
    return true;
}

static void *open_library(const char *name, int flags)
{
    GS_UNCANCELLED cancel = gs_cancel_off();

    return dlopen(name, RTLD_NOW | flags);
}

bool gs_driver_load(void)
{
    void *handle;

    if (atomic_load_explicit(&library.loaded, memory_order_acquire))
        return true;
    gs_libc_symbols_init();
    handle = open_library("libcuda.so.1", RTLD_NOLOAD);
    if (handle == NULL)
        handle = open_library("libcuda.so", RTLD_NOLOAD);
    if (handle == NULL)
        handle = open_library("libcuda.so.1", 0);
    return handle != NULL && fill_table(handle);
}

static bool is_named_so(const void *address, Dl_info *info)
{
    const char *slash;

    if (dladdr(address, info) == 0 || info->dli_fname == NULL)
        return false;
    slash = strrchr(info->dli_fname, '/');
    return strncmp(slash != NULL ? slash + 1 : info->dli_fname, "libcuda.so", 10) == 0;
}

/* The program has found a libcuda in its own way (absolute path, other SONAME): that library is
 * the driver. */
static bool adopt_library(const void *address)
{
    Dl_info info;
    void *handle;

    if (!is_named_so(address, &info))
        return false;
    handle = open_library(info.dli_fname, RTLD_NOLOAD);
    return handle != NULL && fill_table(handle);
}

bool gs_driver_contains(const void *address)
{
    return atomic_load_explicit(&library.loaded, memory_order_acquire) &&
           (((uintptr_t)address >= library.low && (uintptr_t)address < library.high) ||
            ((uintptr_t)address >= library.door_low && (uintptr_t)address < library.door_high));
}

bool gs_driver_is_copy(const void *address)
{
    Dl_info info;

    return !gs_driver_contains(address) && is_named_so(address, &info);
}

bool gs_driver_has(const char *name)
{
    return atomic_load_explicit(&library.loaded, memory_order_acquire) &&
           library.object != NULL && gs_object_function(library.object, name) != NULL;
}

bool gs_driver_owns(const void *address)
{
    if (!atomic_load_explicit(&library.loaded, memory_order_acquire) && !adopt_library(address))
        return false;
    return gs_driver_contains(address);
}

bool gs_driver_present(void)
{
    void *handle;

    if (atomic_load_explicit(&library.loaded, memory_order_acquire))
        return true;
    handle = open_library("libcuda.so.1", RTLD_NOLOAD);
    if (handle == NULL)
        return false;
    dlclose(handle);
    return true;
}

bool gs_driver_was_used(void)
{
    CUresult (*count_devices)(int *) = NULL;
    void *handle = open_library("libcuda.so.1", RTLD_NOLOAD), *found;
    struct range_query door = {0};
    int count;

    if (handle == NULL)
        return false;
    found = gs_libc_dlsym(look_behind(handle, &door), "cuDeviceGetCount");
    memcpy(&count_devices, &found, sizeof found);
    dlclose(handle);
    return found != NULL && count_devices(&count) != CUDA_ERROR_NOT_INITIALIZED;
}

bool gs_driver_is_wrapper(const void *address)
{
    static _Atomic(uintptr_t) own_low,
        own_high; /* relaxed: constant once found, and finding it twice is harmless */
    uintptr_t low = atomic_load_explicit(&own_low, memory_order_relaxed);
    uintptr_t high = atomic_load_explicit(&own_high, memory_order_relaxed);

    if (low == 0 || high == 0) {
        struct range_query query = {.address = (uintptr_t)answer_missing};

        if (dl_iterate_phdr(find_range, &query) == 0)
            return false;
        low = query.low;
        high = query.high;
        atomic_store_explicit(&own_low, low, memory_order_relaxed);
        atomic_store_explicit(&own_high, high, memory_order_relaxed);
    }
    return (uintptr_t)address >= low && (uintptr_t)address < high;
}

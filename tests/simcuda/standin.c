/* SPDX-License-Identifier: Apache-2.0
 *
 * standin.c: the search for the stand-ins that run in place of kernels.
 *
 * Stand-ins are arrays named simcuda_kernels (standin.h): in the shared objects of
 * SIMCUDA_KERNELS, then in every object that is loaded; last, ours (builtin.c). No state. Threads:
 * any, under sim.lock, which is dropped while the dynamic loader is asked (its lock comes first).
 */
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/simcuda/module.h"

static const struct simcuda_kernel *standin_in(const struct simcuda_kernel *table,
                                               const char *name)
{
    for (; table && table->name; table++)
        if (strcmp(table->name, name) == 0)
            return table;
    return NULL;
}

struct standin_search {
    const char *name;
    const struct simcuda_kernel *found;
};

static int search_object(struct dl_phdr_info *info, size_t size, void *data)
{
    struct standin_search *search = data;
    void *object = dlopen(info->dlpi_name[0] ? info->dlpi_name : NULL, RTLD_LAZY | RTLD_NOLOAD);

    (void)size;
    if (!object)
        return 0;
    search->found = standin_in(dlsym(object, "simcuda_kernels"), search->name);
    dlclose(object); /* it stays: we did not load it */
    return search->found != NULL;
}

static const struct simcuda_kernel *search_listed(const char *name)
{
    const char *list = getenv("SIMCUDA_KERNELS");
    const struct simcuda_kernel *found = NULL;

    while (list && *list && !found) {
        char path[1024];
        const size_t length = strcspn(list, ":");
        snprintf(path, sizeof path, "%.*s", (int)(length < 1023 ? length : 1023), list);
        void *object = *path ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL; /* kept for good */
        if (object)
            found = standin_in(dlsym(object, "simcuda_kernels"), name);
        else if (*path)
            sim_log("SIMCUDA_KERNELS: cannot load %s: %s", path, dlerror());
        list += length + (list[length] == ':');
    }
    return found;
}

const struct simcuda_kernel *sim_standin_find(const char *name)
{
    struct standin_search search = {.name = name};

    pthread_mutex_unlock(&sim.lock);
    search.found = search_listed(name);
    if (!search.found)
        dl_iterate_phdr(search_object, &search);
    if (!search.found)
        search.found = sim_builtin_find(name);
    pthread_mutex_lock(&sim.lock);
    return search.found;
}

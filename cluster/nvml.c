/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml.c: see nvml.h. No state.
 */
#include "cluster/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    size_t place;
} functions[] = {
    {"nvmlInit_v2", offsetof(struct nvml, init)},
    {"nvmlDeviceGetHandleByUUID", offsetof(struct nvml, device_by_uuid)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, device_by_index)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, memory)},
    {"nvmlEventSetCreate", offsetof(struct nvml, events_new)},
    {"nvmlDeviceRegisterEvents", offsetof(struct nvml, events_add)},
    {"nvmlEventSetWait_v2", offsetof(struct nvml, events_wait)},
    {"nvmlErrorString", offsetof(struct nvml, text)},
};

int nvml_load(struct nvml *nvml, const char *file, struct gs_err *err)
{
    const char *name = file != NULL ? file : "libnvidia-ml.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    int code;

    if (library == NULL)
        return gs_err_set(err, -ENOENT, "%s", dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);

        if (function == NULL)
            return gs_err_set(err, -EIO, "%s has no %s", name, functions[i].name);
        memcpy((char *)nvml + functions[i].place, &function, sizeof function);
    }
    code = nvml->init();
    return code == NVML_OK ? 0 : gs_err_set(err, -EIO, "%s: %s", name, nvml->text(code));
}

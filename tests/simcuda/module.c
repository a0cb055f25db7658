/* SPDX-License-Identifier: Apache-2.0
 *
 * module.c: owns modules and libraries (one kind of object, either handle may be passed for the
 * other), their functions and device variables.
 *
 * Invariants: a function lives as long as its module; a device variable is allocated when first
 * asked for. Threads: any, under sim.lock.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/simcuda/module.h"

struct sim_module {
    struct sim_module *next;
    struct sim_image image;
    struct sim_function *functions;
    uint64_t context_id; /* 0: a library, belongs to no context */
    void *file;          /* image read from a file */
    struct sim_global {
        struct sim_global *next;
        const struct sim_image_global *image;
        CUdeviceptr address;
        uint64_t context_id;
    } * globals;
};

static struct sim_module *modules;

/* -- modules -- */

static struct sim_module *module_of(const void *handle)
{
    return sim_handle_is(handle, SIM_KIND_MODULE) ? (struct sim_module *)(uintptr_t)handle
                                                  : NULL;
}

static CUresult module_load(const void *code, uint64_t context_id, void *file, void **out)
{
    struct sim_module *module = calloc(1, sizeof *module);

    if (!out || !module) {
        free(module);
        return out ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = sim_image_read(code, &module->image);
    if (!result && sim_handle_add(module, SIM_KIND_MODULE)) {
        sim_image_free(&module->image);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result) {
        free(module);
        return result;
    }
    module->context_id = context_id;
    module->file = file;
    module->next = modules;
    modules = module;
    *out = module;
    return CUDA_SUCCESS;
}

static CUresult module_load_file(const char *path, uint64_t context_id, void **out)
{
    struct stat status;
    char *bytes = NULL;
    CUresult result = CUDA_ERROR_FILE_NOT_FOUND;
    const int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    if (!path || !out)
        return CUDA_ERROR_INVALID_VALUE;
    if (fd < 0)
        return result;
    if (fstat(fd, &status) == 0 && status.st_size > 0 && status.st_size < (1L << 30))
        bytes = calloc(1, (size_t)status.st_size + 8);
    if (bytes && read(fd, bytes, (size_t)status.st_size) == status.st_size)
        result = module_load(bytes, context_id, bytes, out);
    close(fd);
    if (result)
        free(bytes);
    return result;
}

static void globals_free(struct sim_module *module, uint64_t context_id)
{
    struct sim_global **link = &module->globals;

    while (*link) {
        struct sim_global *global = *link;
        if (context_id && global->context_id != context_id) {
            link = &global->next;
            continue;
        }
        struct sim_allocation *allocation = sim_allocation_find(global->address);
        if (allocation)
            sim_free(allocation);
        *link = global->next;
        free(global);
    }
}

static void module_free(struct sim_module *module)
{
    struct sim_module **link = &modules;

    while (*link != module)
        link = &(*link)->next;
    *link = module->next;
    sim_handle_remove(module);
    globals_free(module, 0);
    while (module->functions) {
        struct sim_function *function = module->functions;
        module->functions = function->next;
        sim_handle_remove(function);
        if (function->own_kernel) {
            free(function->kernel->name);
            free(function->kernel);
        }
        free(function);
    }
    sim_image_free(&module->image);
    free(module->file);
    free(module);
}

static CUresult module_unload(const void *handle)
{
    struct sim_module *module = module_of(handle);

    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (struct sim_context *context = sim.contexts; context; context = context->next)
        sim_context_drain(context); /* its kernels may be running */
    module_free(module);
    return CUDA_SUCCESS;
}

void sim_modules_of_context_free(uint64_t context_id)
{
    for (struct sim_module *module = modules, *next = NULL; module; module = next) {
        next = module->next;
        if (module->context_id == context_id)
            module_free(module);
        else
            globals_free(module, context_id);
    }
}

/* -- functions -- */

struct sim_function *sim_function_get(const void *handle)
{
    return sim_handle_is(handle, SIM_KIND_FUNCTION) ? (struct sim_function *)(uintptr_t)handle
                                                    : NULL;
}

static CUresult function_new(struct sim_module *module, struct sim_image_kernel *kernel,
                             bool own, struct sim_function **out)
{
    struct sim_function *function = calloc(1, sizeof *function);

    if (!function || sim_handle_add(function, SIM_KIND_FUNCTION)) {
        free(function);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    function->module = module;
    function->kernel = kernel;
    function->own_kernel = own;
    function->carveout = -1;
    function->next = module->functions;
    module->functions = function;
    *out = function;
    return CUDA_SUCCESS;
}

/* A name in a module that does not tell its names: it is there if a stand-in has it. */
static CUresult function_by_standin(struct sim_module *module, const char *name,
                                    struct sim_function **out)
{
    const struct simcuda_kernel *standin = sim_standin_find(name);

    if (!standin || !sim_handle_is(module, SIM_KIND_MODULE))
        return CUDA_ERROR_NOT_FOUND;
    struct sim_image_kernel *kernel = calloc(1, sizeof *kernel);
    if (kernel)
        *kernel = (struct sim_image_kernel){
            .name = strdup(name), .registers = 32, .max_threads = 1024};
    if (!kernel || !kernel->name) {
        free(kernel);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    const CUresult result = function_new(module, kernel, true, out);
    if (result) {
        free(kernel->name);
        free(kernel);
        return result;
    }
    (*out)->standin = standin;
    return CUDA_SUCCESS;
}

static CUresult function_find(struct sim_module *module, const char *name,
                              struct sim_function **out)
{
    for (struct sim_function *function = module->functions; function; function = function->next)
        if (strcmp(function->kernel->name, name) == 0) {
            *out = function;
            return CUDA_SUCCESS;
        }
    for (size_t i = 0; i < module->image.kernel_count; i++)
        if (strcmp(module->image.kernel[i].name, name) == 0)
            return function_new(module, &module->image.kernel[i], false, out);
    return module->image.any_name ? function_by_standin(module, name, out)
                                  : CUDA_ERROR_NOT_FOUND;
}

static CUresult function_lookup(const void *handle, const char *name, void **out)
{
    struct sim_module *module = module_of(handle);
    struct sim_function *function = NULL;

    if (!out || !name)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    const CUresult result = function_find(module, name, &function);
    if (!result)
        *out = function;
    return result;
}

static CUresult function_count(const void *handle, unsigned *count)
{
    const struct sim_module *module = module_of(handle);

    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    *count = (unsigned)module->image.kernel_count;
    return CUDA_SUCCESS;
}

static CUresult function_list(const void *handle, void **out, unsigned most)
{
    struct sim_module *module = module_of(handle);
    CUresult result = CUDA_SUCCESS;

    if (!out || !most)
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (unsigned i = 0; i < most && i < module->image.kernel_count && !result; i++) {
        struct sim_function *function = NULL;
        result = function_find(module, module->image.kernel[i].name, &function);
        out[i] = function;
    }
    return result;
}

static CUresult library_module(const void *handle, void **out)
{
    return sim_handle_out(out, module_of(handle), module_of(handle));
}

/* -- device variables -- */

static CUresult global_place(struct sim_context *context, struct sim_module *module,
                             const struct sim_image_global *image, CUdeviceptr *address)
{
    struct sim_allocation *allocation = NULL;
    struct sim_global *global = calloc(1, sizeof *global);
    const CUresult result =
        global ? sim_alloc(context, image->size, image->managed ? SIM_MANAGED : SIM_DEVICE,
                           &allocation)
               : CUDA_ERROR_OUT_OF_MEMORY;

    if (result) {
        free(global);
        return result;
    }
    if (image->data)
        memcpy((void *)allocation->range.start, image->data, image->size);
    else
        memset((void *)allocation->range.start, 0, image->size);
    *global = (struct sim_global){.next = module->globals,
                                  .image = image,
                                  .address = allocation->range.start,
                                  .context_id = context->id};
    module->globals = global;
    *address = global->address;
    return CUDA_SUCCESS;
}

static CUresult global_get(struct sim_context *context, const void *handle, const char *name,
                           bool managed, CUdeviceptr *address, size_t *size)
{
    struct sim_module *module = module_of(handle);
    const struct sim_image_global *image = NULL;

    if (!name || (!address && !size))
        return CUDA_ERROR_INVALID_VALUE;
    if (!module)
        return CUDA_ERROR_INVALID_HANDLE;
    for (size_t i = 0; i < module->image.global_count && !image; i++)
        if (strcmp(module->image.global[i].name, name) == 0)
            image = &module->image.global[i];
    if (!image || (managed && !image->managed))
        return CUDA_ERROR_NOT_FOUND;
    if (size)
        *size = image->size;
    if (!address)
        return CUDA_SUCCESS;
    for (const struct sim_global *global = module->globals; global; global = global->next)
        if (global->image == image && (managed || global->context_id == context->id)) {
            *address = global->address;
            return CUDA_SUCCESS;
        }
    return global_place(context, module, image, address);
}

static bool library_options_are_wrong(unsigned count, const CUjit_option *options,
                                      void **values, unsigned library_count,
                                      const CUlibraryOption *library_options,
                                      void **library_values)
{
    return (count && (!options || !values)) ||
           (library_count && (!library_options && library_values));
}

SIM_API(cuModuleLoad, (CUmodule * out, const char *path), SIM_CTX,
        module_load_file(path, call.context->id, (void **)out))
SIM_API(cuModuleLoadData, (CUmodule * out, const void *image), SIM_CTX,
        module_load(image, call.context->id, NULL, (void **)out))
SIM_API(cuModuleLoadDataEx,
        (CUmodule * out, const void *image, unsigned int count, CUjit_option *options,
         void **values),
        SIM_CTX,
        count && (!options || !values)
            ? CUDA_ERROR_INVALID_VALUE
            : module_load(image, call.context->id, NULL, (void **)out))
SIM_API(cuModuleLoadFatBinary, (CUmodule * out, const void *image), SIM_CTX,
        module_load(image, call.context->id, NULL, (void **)out))
SIM_API(cuModuleUnload, (CUmodule module), SIM_INIT | SIM_UNSAFE, module_unload(module))
SIM_API(cuModuleGetLoadingMode, (CUmoduleLoadingMode * mode), SIM_ANYTIME,
        mode ? (*mode = CU_MODULE_LAZY_LOADING, CUDA_SUCCESS) : CUDA_ERROR_INVALID_VALUE)
SIM_API(cuModuleGetFunction, (CUfunction * out, CUmodule module, const char *name), SIM_CTX,
        function_lookup(module, name, (void **)out))
SIM_API(cuModuleGetFunctionCount, (unsigned int *count, CUmodule module), SIM_INIT,
        function_count(module, count))
SIM_API(cuModuleEnumerateFunctions, (CUfunction * out, unsigned int most, CUmodule module),
        SIM_INIT, function_list(module, (void **)out, most))
SIM_API(cuModuleGetGlobal_v2,
        (CUdeviceptr * address, size_t *size, CUmodule module, const char *name), SIM_CTX,
        global_get(call.context, module, name, false, address, size))
SIM_API(cuLibraryLoadData,
        (CUlibrary * out, const void *code, CUjit_option *options, void **values,
         unsigned int count, CUlibraryOption *library_options, void **library_values,
         unsigned int library_count),
        SIM_INIT,
        library_options_are_wrong(count, options, values, library_count, library_options,
                                  library_values)
            ? CUDA_ERROR_INVALID_VALUE
            : module_load(code, 0, NULL, (void **)out))
SIM_API(cuLibraryLoadFromFile,
        (CUlibrary * out, const char *path, CUjit_option *options, void **values,
         unsigned int count, CUlibraryOption *library_options, void **library_values,
         unsigned int library_count),
        SIM_INIT,
        library_options_are_wrong(count, options, values, library_count, library_options,
                                  library_values)
            ? CUDA_ERROR_INVALID_VALUE
            : module_load_file(path, 0, (void **)out))
SIM_API(cuLibraryUnload, (CUlibrary library), SIM_INIT, module_unload(library))
SIM_API(cuLibraryGetKernel, (CUkernel * out, CUlibrary library, const char *name), SIM_INIT,
        function_lookup(library, name, (void **)out))
SIM_API(cuLibraryGetModule, (CUmodule * out, CUlibrary library), SIM_CTX,
        library_module(library, (void **)out))
SIM_API(cuLibraryGetKernelCount, (unsigned int *count, CUlibrary library), SIM_INIT,
        function_count(library, count))
SIM_API(cuLibraryEnumerateKernels, (CUkernel * out, unsigned int most, CUlibrary library),
        SIM_INIT, function_list(library, (void **)out, most))
SIM_API(cuLibraryGetGlobal,
        (CUdeviceptr * address, size_t *size, CUlibrary library, const char *name), SIM_CTX,
        global_get(call.context, library, name, false, address, size))
SIM_API(cuLibraryGetManaged,
        (CUdeviceptr * address, size_t *size, CUlibrary library, const char *name), SIM_CTX,
        global_get(call.context, library, name, true, address, size))

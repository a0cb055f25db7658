/* SPDX-License-Identifier: Apache-2.0
 *
 * bad_input.h: between bad_input.c (processes, allocations) and bad_input_vmm.c (the program's
 * own virtual memory).
 */
#pragma once

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>

#include <cudaTypedefs.h>

#ifdef GS_LINKED /* a sanitizer's dlsym is not ours: linked with the names instead */
#define CALL(symbol, type) ((PFN_##type)symbol)
#else
#define CALL(symbol, type) ((PFN_##type)dlsym(driver, #symbol))
#endif
#define MIB  ((size_t)1 << 20)
#define KEPT (3 * MIB)

extern void *driver;
extern CUstream stream;
extern unsigned char host[4096];
extern CUdeviceptr kept; /* KEPT bytes that no case writes to, but for the first 4096 */

struct bad_case {
    const char *name;
    void (*run)(void);
};
extern const struct bad_case freed_cases[], vmm_cases[]; /* the last has no name */

/* One line of the output. */
void show(const char *step, CUresult result);
void show_true(const char *step, int value);

CUresult allocate(CUdeviceptr *p, size_t bytes);
CUresult release(CUdeviceptr p);
CUresult allocate_async(CUdeviceptr *p, size_t bytes); /* on `stream` */
CUresult release_async(CUdeviceptr p);
CUresult set(CUdeviceptr p, size_t bytes); /* and waits */

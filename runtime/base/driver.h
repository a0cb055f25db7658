/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.h: the real driver: typed pointers to every function of the table.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "wrap/newer_types.h"

#define GS_PFN(base, since, variant) PFN_##base##_v##since##variant

/* Pointers into libcuda. Valid after gs_driver_load() has returned true, and constant then. For
 * functions that this driver does not have they point at a function that returns
 * CUDA_ERROR_NOT_SUPPORTED. */
struct gs_driver {
#define GS_API(symbol, base, since, variant, family, action)                                   \
    GS_PFN(base, since, variant) symbol;
#include "wrap/driver_api.def"
};
extern struct gs_driver gs_driver;

/* The number of functions in the table. */
#define GS_API(symbol, base, since, variant, family, action) +1
enum {
    GS_ROW_COUNT = 0
#include "wrap/driver_api.def"
};

/* Finds libcuda (the copy that the program has already loaded, else libcuda.so.1) and fills
 * gs_driver. Any thread; the first caller works, the others wait. False if there is none; the
 * next call looks again. Holds no lock of ours while it calls the loader. */
bool gs_driver_load(void);

/* True if address lies in the libcuda that gs_driver points into. Loads it if the address is in
 * an object of that name. */
bool gs_driver_owns(const void *address);

/* The same for the libcuda that gs_driver points into already; never calls the loader. */
bool gs_driver_contains(const void *address);

/* True if it lies in another object of the driver's name: another copy, or namespace. */
bool gs_driver_is_copy(const void *address);

/* True if that libcuda exports a function of this name; never calls the loader. */
bool gs_driver_has(const char *name);

/* True if libcuda is in this process already; never loads it. */
bool gs_driver_present(void);

/* True if libcuda is here and has been initialised; many programs only link it. */
bool gs_driver_was_used(void);

/* True if the address is in this library (doors, wrappers). */
bool gs_driver_is_wrapper(const void *address);

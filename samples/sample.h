/* SPDX-License-Identifier: Apache-2.0
 *
 * sample.h: what every CUDA sample needs: checked calls, the clock, sizes and options as people
 * write them.
 *
 * The samples are ordinary CUDA programs: they know nothing of gpushare.
 */
#pragma once

#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAMPLE_WRONG  1  /* exit status: a wrong result, or a CUDA error */
#define SAMPLE_MEMORY 2  /* exit status: out of device memory */
#define SAMPLE_USAGE  64 /* exit status: the command line is wrong */

/* Says what is wrong, in one line, and ends the program. */
__attribute__((format(printf, 2, 3), noreturn)) static inline void
sample_die(int status, const char *format, ...)
{
    va_list arguments;

    fflush(stdout);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(status);
}

#ifdef __CUDA_RUNTIME_API_H__ /* cuda_runtime_api.h is included, by nvcc itself or before this */
/* Ends the program unless the call succeeded. */
static inline void must(cudaError_t error, const char *what)
{
    if (error == cudaErrorMemoryAllocation)
        sample_die(SAMPLE_MEMORY, "%s: %s (%s)", what, cudaGetErrorName(error),
                   cudaGetErrorString(error));
    if (error != cudaSuccess)
        sample_die(SAMPLE_WRONG, "%s: %s (%s)", what, cudaGetErrorName(error),
                   cudaGetErrorString(error));
}
#endif

/* Seconds, from a clock that never goes back. */
static inline double sample_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* "4GiB", "256MiB", "4096", "1.5GB": bytes. Ends the program when it is no size. */
static inline uint64_t sample_size(const char *option, const char *text)
{
    static const char units[] = "KMGT";
    char *end;
    double value = strtod(text, &end);
    double unit = 1;
    const char *letter = *end ? strchr(units, *end) : NULL;

    if (letter) {
        int binary = end[1] == 'i' || end[1] == '\0';

        unit = pow(binary ? 1024 : 1000, (double)(letter - units + 1));
        end += end[1] == 'i' ? 2 : 1;
    }
    if (*end == 'B')
        end++;
    if (end == text || *end || !(value >= 0) || value * unit > 1e18)
        sample_die(SAMPLE_USAGE, "%s %s: not a size; write for example 256MiB or 4GiB", option,
                   text);
    return (uint64_t)(value * unit);
}

/* A number between low and high. Ends the program when it is none. */
static inline double sample_number(const char *option, const char *text, double low,
                                   double high)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end || !(value >= low && value <= high))
        sample_die(SAMPLE_USAGE, "%s %s: not a number from %g to %g", option, text, low, high);
    return value;
}

/* The argument of option argv[*index], which it steps over. Ends the program when there is
 * none. */
static inline const char *sample_argument(int argc, char **argv, int *index)
{
    if (*index + 1 >= argc)
        sample_die(SAMPLE_USAGE, "%s: its value is missing; try --help", argv[*index]);
    return argv[++*index];
}

/* A 64-bit mix in which every bit of the input matters (splitmix64's finaliser). */
#ifdef __CUDACC__
__host__ __device__
#endif
    static inline uint64_t
    sample_mix(uint64_t x)
{
    x ^= x >> 30;
    x *= UINT64_C(0xbf58476d1ce4e5b9);
    x ^= x >> 27;
    x *= UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

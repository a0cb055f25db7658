/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_api.c: a program that imports the driver's functions (-lcuda), without any runtime.
 *
 * Exit status: 0 all right, 1 a wrong result or a CUDA error, 2 out of memory, 64 wrong command
 * line.
 */
#define CU(name) name
#include "driver_work.h"

int main(int argc, char **argv)
{
    return work_main(argc, argv);
}

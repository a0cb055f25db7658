/* SPDX-License-Identifier: Apache-2.0
 *
 * hard_libcuda.c: a libcuda.so.1 that says no: what an unpatched program reaches in place of
 * the stand-in.
 */
int cuInit(unsigned flags);
int cuMemAlloc_v2(unsigned long *address, unsigned long size);
int cuGetProcAddress_v2(void);

int cuInit(unsigned flags)
{
    return 3 + (int)flags;
}

int cuMemAlloc_v2(unsigned long *address, unsigned long size)
{
    *address = size;
    return 2;
}

int cuGetProcAddress_v2(void)
{
    return 500;
}

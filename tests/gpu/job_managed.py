# SPDX-License-Identifier: Apache-2.0
"""Managed memory by the driver API: filled by the card, prefetched and advised; the processor reads it in the middle, while it may be
away. 512 MiB and no more, whatever --ballast-gib says: on a real card the sum of managed memory must never come near what is free."""
import ctypes
import jobs

SIZE = 512 << 20
READ_MOSTLY, PREFERRED, HOST = 1, 3, -1  # advice and places, as in cuda.h
driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    if result != 0:
        raise SystemExit(f"{name}: CUresult {result}")


how = jobs.options()
result = jobs.Result()
context, block = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAllocManaged", ctypes.byref(block), ctypes.c_size_t(SIZE), 1)
half = ctypes.c_uint64(block.value + SIZE // 2)


def bytes_():
    return ctypes.string_at(block.value, SIZE)


def facts():
    """Advice, and the last prefetch, of the first half."""
    said = []
    for attribute in (1, 2, 4):
        value = ctypes.c_int(-99)
        call("cuMemRangeGetAttribute", ctypes.byref(value), ctypes.c_size_t(4), attribute, block, ctypes.c_size_t(SIZE // 2))
        said.append(value.value)
    return said


call("cuMemsetD32_v2", block, ctypes.c_uint(0x11223344), ctypes.c_size_t(SIZE // 4))
call("cuMemAdvise", block, ctypes.c_size_t(SIZE // 2), READ_MOSTLY, 0)
call("cuMemAdvise", half, ctypes.c_size_t(SIZE // 2), PREFERRED, 0)
call("cuMemPrefetchAsync", block, ctypes.c_size_t(SIZE // 2), 0, None)
call("cuCtxSynchronize")
before = facts()
jobs.middle(how)
result.hash.update(bytes_())
for i in range(64):
    call("cuMemsetD8_v2", ctypes.c_uint64(block.value + i * (SIZE // 64)), ctypes.c_ubyte(i), ctypes.c_size_t(SIZE // 128))
call("cuCtxSynchronize")
result.hash.update(bytes_())
result.arrays = 2
if facts() != before:
    raise SystemExit(f"advice and prefetches were {before}, and are {facts()}")
call("cuMemFree_v2", block)
result.print("managed")

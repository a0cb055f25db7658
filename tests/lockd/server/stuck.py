# SPDX-License-Identifier: Apache-2.0
"""A program that computes with the simulated driver and does not stop when the daemon asks it to: stuck.py BYTES.

Says on its standard output what it does: `holds`, `read N` for each time that it found its memory as it should be."""
import ctypes
import os
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import RUN, RUNNING, STUCK, WANT, Program

BYTES = int(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    assert result == 0, f"{name}: {result}"


def say(text):
    print(text, flush=True)


context, device = ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
uuid = (ctypes.c_uint8 * 16)()
call("cuDeviceGetUuid_v2", uuid, 0)
total = ctypes.c_size_t()
call("cuDeviceTotalMem_v2", ctypes.byref(total), 0)

program = Program(os.environ["GPUSHARE_SOCKET"], "stubborn", total=total.value, uuid=bytes(uuid))
program.say(flags=WANT, demand=BYTES)
program.settle(lambda p: p.flags & RUNNING)
call("cuMemAlloc_v2", ctypes.byref(device), ctypes.c_size_t(BYTES))
call("cuMemsetD8_v2", device, ctypes.c_ubyte(0x5a), ctypes.c_size_t(BYTES))
say("holds")


def obey_badly():
    """Answers every target, and goes on all the same. When the daemon has gone, it comes back."""
    while True:
        try:
            target = program.hear(60)
        except (EOFError, OSError):
            program.reconnect()
            target = program.target
        if target is not None:
            program.say(flags=RUNNING | WANT | (0 if target.flags & RUN else STUCK))


threading.Thread(target=obey_badly, daemon=True).start()
seen, count = ctypes.create_string_buffer(BYTES), 0
while True:
    call("cuMemcpyDtoH_v2", seen, device, ctypes.c_size_t(BYTES))
    assert seen.raw.count(b"\x5a") == BYTES, "its memory is not what it was"
    count += 1
    say(f"read {count}")
    time.sleep(0.05)

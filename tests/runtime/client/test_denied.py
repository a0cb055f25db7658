#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A filter of seccomp that refuses sendmsg or recvmsg: the program says so in one line, at once, and goes on.
test_denied.py --build DIR"""
import ctypes
import os
import platform
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import BuildTest, Card, Told, check, main  # noqa: E402

NUMBERS = {"x86_64": {"sendmsg": 46, "recvmsg": 47}, "aarch64": {"sendmsg": 211, "recvmsg": 212}}
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # linux/bpf_common.h
ALLOW, ERRNO, EPERM = 0x7FFF0000, 0x00050000, 1
AT_ONCE = 4  # seconds: less than the 5 s for which a daemon is waited for


def deny(number):
    """A function that refuses this system call to its process from now on."""
    libc = ctypes.CDLL(None, use_errno=True)
    code = b"".join(struct.pack("HBBI", *each) for each in (
        (LOAD, 0, 0, 0), (JUMP_IF_EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | EPERM), (RETURN, 0, 0, ALLOW)))
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", 4, ctypes.addressof(kept))

    def install():
        if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 or libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
            os._exit(77)
    install.kept = kept
    return install


class Denied(BuildTest):
    def test_calls_of_messages(self):
        for name, number in NUMBERS.get(platform.machine(), {}).items():
            took = []
            for _ in range(5):  # a busy machine is slow now and then, but not every time
                with Card(self.build, **Told.SMALL_CONTEXTS) as card:
                    start = time.monotonic()
                    told = Told(card, prepare=deny(number))
                    check(told.say("alloc 10") == "ok", name)
                    took.append(time.monotonic() - start)
                    err = told.end(silent=False)
                    check(err.count("running without sharing") == 1 and err.count("\n") == 1, f"{name}: {err}")
                if took[-1] < AT_ONCE:
                    break
            check(min(took) < AT_ONCE, f"{name}: {took}")


if __name__ == "__main__":
    main()

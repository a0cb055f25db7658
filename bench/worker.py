# SPDX-License-Identifier: Apache-2.0
"""What the programs of benchmarks that are told what to do have in common: lines on standard input, and the driver by ctypes."""
import ctypes
import json
import os
import signal
import sys


class OutOfMemory(Exception):
    pass


class Driver:
    """Once begun, in the first device's primary context."""

    def begin(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, name, *words):
        result = self.driver[name](*words)
        said = f"{name}: CUDA error {result}"
        if result == 2:
            raise OutOfMemory(said)
        if result != 0:
            sys.exit(said)

    def allocate(self, nbytes):
        address = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        return address


def answer_lines(make_job, obey):
    """Each line is answered by a line of JSON: what obey(job, word, words) returns."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: it ends with the script, however that ends
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a framework prints is no answer
    job = make_job()
    for line in sys.stdin:
        word, *words = line.split()
        print(json.dumps(obey(job, word, words)), file=answers, flush=True)

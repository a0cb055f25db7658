# SPDX-License-Identifier: Apache-2.0
"""One of the programs that solo_bench.py compares: does a job's iterations when a line says so, and nothing else meanwhile.

commands, each answered by a line of JSON: "open JOB SIZE", "turn N" (one iteration to warm up, then N timed ones), "close".
jobs: copy (driver API, SIZE bytes a buffer), gemm (PyTorch, SIZE x SIZE bf16), resnet (PyTorch, a batch of SIZE)
"""
import ctypes
import gc
import json
import sys
import time


class Copy:
    """From one buffer of device memory to another, by the driver API."""

    def __init__(self, size):
        self.driver, self.size = ctypes.CDLL("libcuda.so.1"), size
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.buffers = [ctypes.c_uint64(), ctypes.c_uint64()]
        for buffer in self.buffers:
            self.call("cuMemAlloc_v2", ctypes.byref(buffer), ctypes.c_size_t(size))
            self.call("cuMemsetD8_v2", buffer, ctypes.c_ubyte(7), ctypes.c_size_t(size))
        self.copy = self.driver["cuMemcpyDtoDAsync_v2"]
        self.words = (*self.buffers, ctypes.c_size_t(size), None)
        name, driver = ctypes.create_string_buffer(64), ctypes.c_int()
        self.call("cuDeviceGetName", name, 64, device)
        self.call("cuDriverGetVersion", ctypes.byref(driver))
        self.facts = {"card": name.value.decode(), "driver": driver.value}

    def call(self, name, *words):
        result = self.driver[name](*words)
        if result != 0:
            sys.exit(f"{name}: CUDA error {result}")

    def iteration(self):
        if self.copy(*self.words) != 0:
            sys.exit("cuMemcpyDtoDAsync failed")

    def wait(self):
        self.call("cuCtxSynchronize")

    def close(self):
        for buffer in self.buffers:
            self.call("cuMemFree_v2", buffer)


class Torch:
    """What PyTorch's jobs share. Algorithms are chosen by rule, not by timing them, so that all workers have the same."""

    def __init__(self):
        import torch
        self.torch = torch
        torch.backends.cudnn.benchmark = False
        torch.manual_seed(1)
        self.facts = {"card": torch.cuda.get_device_name(0), "driver": None, "torch": torch.__version__}

    def wait(self):
        self.torch.cuda.synchronize()

    def close(self):
        self.__dict__ = {"torch": self.torch}
        gc.collect()
        self.torch.cuda.empty_cache()


class Gemm(Torch):
    def __init__(self, size):
        super().__init__()
        self.a, self.b = (self.torch.randn(size, size, dtype=self.torch.bfloat16, device="cuda") for _ in range(2))
        self.out = self.torch.empty_like(self.a)

    def iteration(self):
        self.torch.matmul(self.a, self.b, out=self.out)


def resnet50(torch):
    """ResNet-50 (He et al. 2015, the stride in the 3x3 convolution as everybody has it)."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, wide, narrow, stride):
            super().__init__()
            out = narrow * 4
            self.body = nn.Sequential(
                nn.Conv2d(wide, narrow, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(inplace=True),
                nn.Conv2d(narrow, narrow, 3, stride, 1, bias=False), nn.BatchNorm2d(narrow), nn.ReLU(inplace=True),
                nn.Conv2d(narrow, out, 1, bias=False), nn.BatchNorm2d(out))
            self.side = nn.Identity() if wide == out and stride == 1 else nn.Sequential(
                nn.Conv2d(wide, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            self.end = nn.ReLU(inplace=True)

        def forward(self, x):
            return self.end(self.body(x) + self.side(x))

    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    wide = 64
    for narrow, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for at in range(blocks):
            layers.append(Block(wide, narrow, stride if at == 0 else 1))
            wide = narrow * 4
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 1000))


class ResNet(Torch):
    """Training: forward, backward, a step of SGD; synthetic images, channels last, bf16 autocast."""

    def __init__(self, batch):
        super().__init__()
        torch = self.torch
        self.model = resnet50(torch).to("cuda", memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.images = torch.randn(batch, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (batch,), device="cuda")

    def iteration(self):
        torch = self.torch
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            self.loss = torch.nn.functional.cross_entropy(self.model(self.images), self.labels)
        self.loss.backward()
        self.optimizer.step()


JOBS = {"copy": Copy, "gemm": Gemm, "resnet": ResNet}


def turn(job, count):
    """Seconds of so many iterations, from an idle card that is awake to an idle card."""
    job.iteration()
    job.wait()
    start = time.perf_counter()
    for _ in range(count):
        job.iteration()
    job.wait()
    return time.perf_counter() - start


def main():
    job = None
    gc.disable()
    for line in sys.stdin:
        words = line.split()
        if words[0] == "open":
            job = JOBS[words[1]](int(words[2]))
            for _ in range(3):
                job.iteration()
            job.wait()
            answer = job.facts
        elif words[0] == "turn":
            answer = {"seconds": turn(job, int(words[1]))}
            gc.collect()
        else:
            job.close()
            job, answer = None, {}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two Jupyter kernels in one patched environment share a simulated card that is too small for both, and answer.

The environment is made once in the build folder, with the packages of the group pypi of scripts/packages.txt. Without
them (no network) the test is skipped. Jupyter's own client (jupyter_client) starts the kernels and sends the cells.
"""
import json
import os
import subprocess
import sys

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CARD_MIB, BLOCK_MIB, ROUNDS = 64, 48, 4
SETUP = """
import ctypes
driver = ctypes.CDLL("libcuda.so.1")
context, block = ctypes.c_void_p(), ctypes.c_uint64()
def call(name, *arguments):
    result = getattr(driver, name)(*arguments)
    assert result == 0, f"{name}: {result}"
call("cuInit", 0)
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemAlloc_v2", ctypes.byref(block), ctypes.c_size_t(BLOCK))
call("cuMemsetD32_v2", block, ctypes.c_uint32(NUMBER), ctypes.c_size_t(BLOCK // 4))
print("ready")
"""
CELL = """
host = (ctypes.c_uint32 * (BLOCK // 4))()
call("cuMemcpyDtoH_v2", host, block, ctypes.c_size_t(BLOCK))
print("right" if set(host[::1023]) == {NUMBER} else "WRONG", NUMBER)
call("cuMemsetD32_v2", block, ctypes.c_uint32(NUMBER + 10), ctypes.c_size_t(BLOCK // 4))
"""


def run_kernels():
    """In the environment's Python: prints as JSON what each cell of the two kernels said, and what the daemon knows of the kernels
    while they live (a kernel that is slow to end is killed, and writes no statistics)."""
    from jupyter_client.manager import KernelManager  # of the environment
    kernels = []
    for number in (1, 2):
        manager = KernelManager()
        manager.kernel_spec.argv[0] = sys.executable
        manager.start_kernel()
        client = manager.blocking_client()
        client.start_channels()
        client.wait_for_ready(timeout=240)
        kernels.append((number, manager, client))
    said = []
    for step in range(ROUNDS + 1):
        for number, _, client in kernels:
            code = SETUP if step == 0 else CELL
            texts = []

            def take(message, texts=texts):
                content = message["content"]
                texts.append(content.get("text", "") + "".join(content.get("traceback", [])[-1:]))

            value = number if step == 0 else number + 10 * (step - 1)
            code = code.replace("NUMBER", str(value)).replace("BLOCK", str(BLOCK_MIB << 20))
            reply = client.execute_interactive(code, timeout=240, output_hook=take)
            said.append((number, step, reply["content"]["status"], "".join(texts).strip()))
    status = subprocess.run([os.environ["KERNEL_CTL"], "status", "--json"], capture_output=True, text=True, check=False).stdout
    for _, manager, client in kernels:
        client.stop_channels()
        manager.shutdown_kernel()
    print(json.dumps({"said": said, "status": json.loads(status)}))


if __name__ == "__main__" and "--kernels" in sys.argv:
    run_kernels()
    sys.exit(0)

from card import PATIENCE, BuildTest, Card, check, main  # noqa: E402  (beside this file, not in the environment)


def packages():
    with open(os.path.join(TOP, "scripts", "packages.txt"), encoding="utf-8") as file:
        return [line.split()[1] for line in file if line.startswith("pypi ")]


def make_environment(folder):
    """The environment's Python, or why there is none."""
    python = os.path.join(folder, "bin", "python3")
    has = [python, "-c", "import ipykernel, jupyter_client"]
    if os.path.exists(python) and subprocess.run(has, capture_output=True, check=False).returncode == 0:
        return python, None
    for command in ([sys.executable, "-m", "venv", "--clear", folder],
                    [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--retries", "1", "--timeout", "20", *packages()]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE, check=False)
        except subprocess.TimeoutExpired:
            return None, f"{command[1:4]} takes too long"
        if done.returncode != 0:
            return None, f"{' '.join(command[1:4])}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}"
    return python, None


class Jupyter(BuildTest):
    def setUp(self):
        self.folder = os.path.join(self.build, "tests", "runtime", "jupyter")
        self.python, why = make_environment(self.folder)
        if why is not None:
            self.skipTest(f"no environment with {', '.join(packages())}: {why}")

    def patch(self, card, *options):
        done = subprocess.run([os.path.join(self.build, "rewriter", "gpushare-patch"), *options, "--venv", self.folder],
                              env={**card.environment, "GPUSHARE_STATE": os.path.join(card.folder, "state")}, capture_output=True, text=True, check=False)
        check(done.returncode in (0, 4) if options == ("--restore",) else done.returncode == 0, f"{options}: {done.stdout} {done.stderr}")

    def kernels(self, card):
        """What the cells said, and the entries of the kernels in the daemon's status."""
        status, out, err = card.run([self.python, os.path.abspath(__file__), "--kernels"], timeout=10 * PATIENCE,
                                    KERNEL_CTL=os.path.join(self.build, "lockd", "gpusharectl"), IPYTHONDIR=card.folder, HOME=card.folder,
                                    JUPYTER_RUNTIME_DIR=os.path.join(card.folder, "runtime"), JUPYTER_CONFIG_DIR=os.path.join(card.folder, "config"))
        check(status == 0, f"{status}: {out} {err}")
        told = json.loads(out.strip().splitlines()[-1])
        return told["said"], [program for device in told["status"]["devices"] for program in device["programs"]]

    def test_two_kernels_share_a_card_that_is_too_small(self):
        runtime = os.path.join(self.build, "runtime", "libgpushare.so.1")
        with Card(self.build, memory=f"{CARD_MIB}MiB", SIMCUDA_CONTEXT_MEMORY="64KiB") as card:
            self.patch(card, "--restore")
            said, programs = self.kernels(card)
            check(programs == [], f"the daemon knows an unpatched kernel: {programs}")
            second = [each for each in said if each[:2] == [2, 0]][0]
            check("cuMemAlloc_v2: 2" in second[3], f"unpatched, the second kernel has memory: {second}")
        with Card(self.build, memory=f"{CARD_MIB}MiB", SIMCUDA_CONTEXT_MEMORY="64KiB") as card:
            self.patch(card, "--runtime", runtime)
            try:
                said, programs = self.kernels(card)
            finally:
                self.patch(card, "--restore")
            wanted = [[number, step, "ok", "ready" if step == 0 else f"right {number + 10 * (step - 1)}"]
                      for step in range(ROUNDS + 1) for number in (1, 2)]
            check(said == wanted, f"{said}")
            check(len(programs) == 2 and all(each["moved_out"] > 0 for each in programs), f"{programs}")


if __name__ == "__main__":
    main()

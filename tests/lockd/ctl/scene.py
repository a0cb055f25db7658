# SPDX-License-Identifier: Apache-2.0
"""Two simulated cards as gpusharectl shows them in pictures and tests: prepared programs, one of them stopped by a signal, two
programs that are not prepared, and names of up to 31 letters."""
import json
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../runtime"))
from card import Card, wait_for  # noqa: E402

LONG = "train-resnet50-imagenet-fp16-bo"  # as long as the kernel lets a name be
MEMORY = "512MiB"


class Scene(Card):
    """with Scene(build) as scene: scene.set_up(); scene.ctl("status")."""

    def __init__(self, build, cards=2):
        super().__init__(build, memory=MEMORY, options=["--quantum", "1500"], SIMCUDA_DEVICES=str(cards), SIMCUDA_CONTEXT_MEMORY="6MiB",
                         SIMCUDA_KERNELS=os.path.join(build, "samples", "hog_standin.so"), SIMCUDA_PCIE_GBPS="2",
                         SIMCUDA_KERNEL_NS="20000000")
        self.programs = {}

    def seeing(self, **more):
        """The environment of a gpusharectl that finds the simulated libnvidia-ml.so.1."""
        return {**self.environment, "GPUSHARE_NVML_WAIT": "60", "LC_ALL": "C.UTF-8",
                "LD_LIBRARY_PATH": os.path.join(self.build, "tests", "simcuda", "nvml"), **more}

    def command(self, *words):
        return [os.path.join(self.build, "lockd", "gpusharectl"), *words]

    def ctl(self, *words, **more):
        return subprocess.run(self.command(*words), env=self.seeing(**more), capture_output=True, text=True, check=True).stdout

    def look(self):
        return json.loads(self.ctl("status", "--json"))

    def program(self, name, share, prepared=True, card=0, cpu_ms=5):
        path = os.path.join(self.folder, name)
        shutil.copy(os.path.join(self.build, "samples", "hog"), path)
        if prepared:
            subprocess.run([os.path.join(self.build, "rewriter", "gpushare-patch"), "-q", path], env=self.environment, check=True)
        self.programs[name] = self.start([path, "--share", str(share), "--rounds", "1000000", "--seconds", "900", "--cpu-ms", str(cpu_ms),
                                          "--quiet"], CUDA_VISIBLE_DEVICES=str(card))
        return self.programs[name]

    def shown(self, name, key="resident"):
        for device in self.look().get("devices", []):
            for program in device["programs"]:
                if program["name"] == name:
                    return program[key]
        return None

    def outside(self, name):
        """The memory of a process that is not prepared; 0: it is not listed."""
        return max((p["memory"] or 0 for gpu in self.look()["gpus"] for p in gpu["other_processes"] if p["name"] == name), default=0)

    def set_up(self):
        """Everything is there when it returns: whoever does not fit waits, and one program is stopped."""
        self.program("legacy-sim", 0.2, prepared=False)
        assert wait_for(lambda: self.outside("legacy-sim") > 64 << 20)
        for name, share in ((LONG, 0.5), ("jupyter-alice", 0.3), ("ollama", 0.25)):
            self.program(name, share)
            assert wait_for(lambda name=name: self.shown(name, "demand")), name
        self.program("vllm-server", 0.6, card=1)
        self.program("matlab", 0.2, prepared=False, card=1)
        assert wait_for(lambda: self.shown("vllm-server", "demand") and self.outside("matlab") > 64 << 20)
        assert wait_for(lambda: (self.shown("ollama", "turns") or 0) > 0)
        self.programs["ollama"].send_signal(signal.SIGSTOP)

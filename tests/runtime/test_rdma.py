#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program that has a device for RDMA or GPUDirect Storage open keeps its memory on the card: the network card was told where it lies.
test_rdma.py --build DIR. The devices are plain files in a mount namespace of the test's own; 77 where none can be made."""
import json
import os
import subprocess
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from card import MIB, BuildTest, Card, Told, check, main  # noqa: E402  (beside this file)

NAMESPACE = ["/usr/bin/unshare", "--mount"] if os.geteuid() == 0 else ["/usr/bin/unshare", "--user", "--map-root-user", "--mount"]


def with_open(build, path):
    """The words of a command that runs `moves` with this file open as descriptor 9. Its process stays the same."""
    inside = (f'mount -t tmpfs none /dev && mkdir -p "$(dirname {path})" && : >{path} && exec 9<{path} && '
              f'exec {os.path.join(build, "tests", "runtime", "moves")}')
    return [*NAMESPACE, "sh", "-c", inside]


def kept(build, path):
    """Whether the memory of a program that has this file open stays when another program needs the card."""
    with Card(build, memory="128MiB", **Told.SMALL_CONTEXTS) as card:
        told, other = Told(card, command=with_open(build, path)), Told(card)
        check(told.say("alloc 40") == "ok", f"{path}: 40 MiB")
        told.until(lambda entry: entry["resident"] >= 40 * MIB)
        other.tell(f"zero {(card.capacity() >> 20) - 20}")
        entry = told.until(lambda entry: entry["resident"] == 0)
        stays = entry["pinned"] >= 40 * MIB
        if stays:
            said = json.dumps(card.status())
            check("a device for RDMA or GPUDirect Storage" in said, f"{path}: it is said: {said}")
        else:
            check(other.answer() == "ok", f"{path}: the other program has the card")
            check(other.say("free 0") == "ok", "and returns it")
        check(told.say("check") == "ok", f"{path}: every byte")
        told.end()
        other.child.kill()
        return stays


class Rdma(BuildTest):
    def setUp(self):
        done = subprocess.run([*NAMESPACE, "mount", "-t", "tmpfs", "none", "/dev"], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            self.skipTest(f"no mount namespace here: {done.stderr.strip()}")

    def test_such_a_device_keeps_memory_in_place(self):
        for path in ("/dev/infiniband/uverbs0", "/dev/gdrdrv", "/dev/nvidia-fs7"):
            check(kept(self.build, path), f"{path}: its memory stays")

    def test_another_file_does_not(self):
        check(not kept(self.build, "/dev/infiniband/rdma_cm"), "its memory leaves")


if __name__ == "__main__":
    main()

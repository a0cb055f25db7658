# SPDX-License-Identifier: Apache-2.0
"""gpushare-device-plugin as the tests run it: its specification of two GPUs, its kubelet, the simulated driver, its log; and HTTP/2 by
hand."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.dirname(HERE), os.path.join(os.path.dirname(HERE), "lockd")]
import kubelet  # noqa: E402
import kit  # noqa: E402
from kubelet import PATIENCE, wait_for  # noqa: E402

kubelet.need_grpc()
import grpc  # noqa: E402

FIRST = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"  # the bytes of fake.CARD
SECOND = "GPU-11111111-2222-3333-4444-555555555555"


def spec(folder):
    nodes = []
    for i in range(2):
        nodes.append(os.path.join(folder, f"nvidia{i}"))
        open(nodes[i], "w").close()  # pylint: disable=consider-using-with
    edits = [{"deviceNodes": [{"path": node, "permissions": "rwm"}]} for node in nodes]
    return {"cdiVersion": "0.7.0", "kind": "gpushare.dev/gpu", "devices": [
        {"name": "0", "containerEdits": edits[0]}, {"name": FIRST, "containerEdits": edits[0]},
        {"name": "1", "containerEdits": edits[1]}, {"name": SECOND, "containerEdits": edits[1]},
        {"name": "all", "containerEdits": {"deviceNodes": [{"path": node} for node in nodes]}}],
        "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "additionalGids": [999],
                           "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": "/dev/null"}],
                           "mounts": [{"hostPath": "/host/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1", "options": ["ro", "bind"]},
                                      {"hostPath": "/run/gpushare", "containerPath": "/run/gpushare", "options": ["bind"]}]}}


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 8, 9  # RFC 9113, 6


def frame(kind, flags=0, stream=0, body=b""):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


def headers(stream, method):
    """Of a call, each as a literal (RFC 7541, 6.2.2)."""
    fields = {":method": "POST", ":scheme": "http", ":path": "/v1beta1.DevicePlugin/" + method, ":authority": "localhost",
              "te": "trailers", "content-type": "application/grpc"}
    head = b"".join(b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode() for name, value in fields.items())
    return frame(HEADERS, 4, stream, head)


def request(stream, method, message):
    """A call with one gRPC message."""
    return headers(stream, method) + frame(DATA, 1, stream, b"\0" + len(message).to_bytes(4, "big") + message)


class PluginTest(kit.BuildTest):
    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="gs-plugin-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.sockets = os.path.join(self.folder, "device-plugins")
        os.mkdir(self.sockets)
        self.fifo = os.path.join(self.folder, "nvml")
        os.mkfifo(self.fifo)
        self.spec = os.path.join(self.folder, "gpushare.json")
        with open(self.spec, "w", encoding="utf-8") as file:
            json.dump(spec(self.folder), file)
        self.log = os.path.join(self.folder, "log")
        self.kubelet = kubelet.Kubelet(self.sockets)
        self.addCleanup(self.kubelet.stop)
        self.process = None

    def start(self, *words, env=None):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [os.path.join(self.build, "cluster", "gpushare-device-plugin"), "--cdi", self.spec, "--kubelet", self.sockets,
                 "--pod-resources", os.path.join(self.folder, "pods.sock"), "--socket", os.path.join(self.folder, "lockd.sock"),
                 "--nvml", os.path.join(self.build, "tests", "cluster", "libsim_nvml.so"), "--period", "1", "--log-level", "debug", *words],
                stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, "SIM_NVML": self.fifo, **(env or {})})
        self.addCleanup(self.end)

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def text(self):
        with open(self.log, encoding="utf-8") as file:
            return file.read()

    def wait_text(self, pattern):
        wait_for(lambda: re.search(pattern, self.text()), lambda: f"the log has no {pattern!r}:\n{self.text()}")

    def tell(self, line):
        with open(self.fifo, "w", encoding="ascii") as file:
            file.write(line + "\n")

    def wait_list(self, plugin, good):
        """The next list of devices that is as wanted; each GPU's devices have one health."""
        while True:
            devices = plugin.next_list()
            self.assertIsInstance(devices, dict, self.text())
            health = {}
            for name, state in devices.items():
                self.assertEqual(health.setdefault(name.split("::")[0], state), state)
            if good(health):
                return devices

    def begin(self, *words, **more):
        self.kubelet.start()
        self.start(*words, **more)
        plugin = self.kubelet.plugin()
        self.addCleanup(plugin.close)
        return plugin

    def refused(self, call, code, words):
        with self.assertRaises(grpc.RpcError) as caught:
            call()
        self.assertEqual(caught.exception.code(), code, caught.exception.details())
        self.assertIn(words, caught.exception.details())
        self.assertIn(words, self.text())

    def raw(self):
        """A connection that speaks HTTP/2 by hand, after its preface and settings."""
        connection = socket.socket(socket.AF_UNIX)
        self.addCleanup(connection.close)
        connection.settimeout(PATIENCE)
        connection.connect(os.path.join(self.sockets, "gpushare.sock"))
        connection.sendall(PREFACE + frame(SETTINGS))
        return connection

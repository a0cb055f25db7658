#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-device-plugin with a kubelet that is not real but speaks the real protocol: its whole life.
test_life.py --build DIR [--restarts N]"""
import os
import re
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from running import FIRST, SECOND, PluginTest, headers, request  # noqa: E402
import kit  # noqa: E402
import kubelet  # noqa: E402
from kubelet import PATIENCE, wait_for  # noqa: E402
import grpc  # noqa: E402
import fake  # noqa: E402


class Life(PluginTest):
    def test_registers_lists_and_says_what_it_can(self):
        plugin = self.begin("--per-gpu", "3")
        self.assertEqual(plugin.asked, {"version": "v1beta1", "endpoint": "gpushare.sock", "resource_name": "gpushare.dev/gpu",
                                        "options": {"pre_start_required": False, "get_preferred_allocation_available": True}})
        self.assertEqual(plugin.next_list(), {f"{card}::{i}": "Healthy" for card in (FIRST, SECOND) for i in range(3)})
        self.assertEqual(plugin.call("GetDevicePluginOptions", kubelet.EMPTY, {}, kubelet.OPTIONS),
                         {"pre_start_required": False, "get_preferred_allocation_available": True})
        self.assertEqual(plugin.call("PreStartContainer", kubelet.PRE_START, {"devices_ids": [f"{FIRST}::0"]}, kubelet.EMPTY), {})

    def test_allocate_names_cdi_devices(self):
        plugin = self.begin()
        answers = plugin.allocate([f"{SECOND}::9"], [f"{FIRST}::0", f"{SECOND}::1"], [])
        self.assertEqual([[each["name"] for each in answer["cdi_devices"]] for answer in answers],
                         [[f"gpushare.dev/gpu={SECOND}"], [f"gpushare.dev/gpu={FIRST}", f"gpushare.dev/gpu={SECOND}"], []])
        for answer in answers:
            self.assertEqual([answer[name] for name in ("envs", "mounts", "devices", "annotations")], [[]] * 4)

    def test_allocate_lists_what_the_specification_says(self):
        plugin = self.begin("--answer", "mounts")
        answer = plugin.allocate([f"{SECOND}::9"])[0]
        self.assertEqual(answer, {
            "envs": [{"key": "NVIDIA_VISIBLE_DEVICES", "value": "void"}], "annotations": [], "cdi_devices": [],
            "mounts": [{"container_path": "/usr/lib/libcuda.so.1", "host_path": "/host/libcuda.so.1", "read_only": True},
                       {"container_path": "/run/gpushare", "host_path": "/run/gpushare", "read_only": False}],
            "devices": [{"container_path": "/dev/nvidiactl", "host_path": "/dev/null", "permissions": "rw"},
                        {"container_path": self.folder + "/nvidia1", "host_path": self.folder + "/nvidia1", "permissions": "rwm"}]})
        self.wait_text("supplementalGroups")

    def test_wrong_questions_are_refused_in_words(self):
        plugin = self.begin()
        wrong, missing = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND
        self.refused(lambda: plugin.allocate([f"{FIRST}::0", f"{FIRST}::1"]), wrong, "asks for 2 GPUs and got GPU " + FIRST + " twice")
        self.refused(lambda: plugin.allocate([f"{FIRST}::{i}" for i in range(3)]), wrong, "asks for 3 GPUs and there are 2")
        for name in ("x", FIRST, FIRST + "::10", FIRST + "::-1", FIRST + "::00", FIRST + "::", "0::0", "", "ä\n"):
            self.refused(lambda name=name: plugin.allocate([name]), missing, "there is no device")
            self.refused(lambda name=name: plugin.prefer([name], 1), missing, "there is no device")
        self.refused(lambda: plugin.prefer([f"{FIRST}::0"], 2), wrong, "2 devices are wanted and 1 are available")
        self.refused(lambda: plugin.prefer([f"{FIRST}::0"], -1), wrong, "-1 of 20 devices")
        raw = plugin.channel.unary_unary("/v1beta1.DevicePlugin/Allocate")
        self.refused(lambda: raw(b"\xff\xff\xff", timeout=PATIENCE), wrong, "not what the device plugin API v1beta1 says")
        with self.assertRaises(grpc.RpcError) as caught:
            plugin.channel.unary_unary("/v1beta1.DevicePlugin/Nothing")(b"", timeout=PATIENCE)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.UNIMPLEMENTED)
        with self.assertRaises(grpc.RpcError) as caught:
            raw(bytes(2 << 20), timeout=PATIENCE)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.RESOURCE_EXHAUSTED)
        self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])[0]["cdi_devices"]), 1)

    def test_preferred_are_distinct_and_least_loaded(self):
        plugin = self.begin()
        everything = list(plugin.next_list())
        cards = lambda ids: sorted(name.split("::")[0] for name in ids)  # noqa: E731
        self.assertEqual(cards(plugin.prefer(everything, 2)), [FIRST, SECOND])
        # without a daemon: the GPU of which less was given out
        left = [name for name in everything if name not in (f"{FIRST}::3", f"{FIRST}::7")]
        self.assertEqual(cards(plugin.prefer(left, 1)), [SECOND])
        self.assertEqual(cards(plugin.prefer(left, 2, must=[f"{SECOND}::5"])), [FIRST, SECOND])
        self.assertIn(f"{SECOND}::5", plugin.prefer(left, 2, must=[f"{SECOND}::5"]))
        self.assertEqual(len(set(plugin.prefer(everything, 20))), 20)
        # with one: the GPU that programs want less of
        path = os.path.join(self.folder, "lockd.sock")
        daemon = subprocess.Popen([os.path.join(self.build, "lockd", "gpushare-lockd"), "--socket", path], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        wait_for(lambda: fake.can_connect(path), lambda: "no daemon")
        program = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.addCleanup(program.close)
        program.connect(path)
        program.send(fake.hello())
        uuid = bytes.fromhex(SECOND[4:].replace("-", ""))
        program.send(fake.state(uuid=uuid, demand=8 * fake.GIB, resident=0))
        wait_for(lambda: cards(plugin.prefer(left, 1)) == [FIRST], self.text)

    def test_health_follows_the_driver(self):
        plugin = self.begin()
        self.wait_list(plugin, lambda health: set(health.values()) == {"Healthy"})
        self.tell(f"xid {FIRST} 31")  # a program's own fault
        self.tell(f"xid {SECOND} 79")
        self.wait_list(plugin, lambda health: health == {FIRST: "Healthy", SECOND: "Unhealthy"})
        self.wait_text(f"GPU {SECOND} is not healthy: XID error 79")
        self.refused(lambda: plugin.allocate([f"{SECOND}::0"]), grpc.StatusCode.FAILED_PRECONDITION, "XID error 79")
        self.tell(f"lost {FIRST}")
        self.wait_list(plugin, lambda health: health == {FIRST: "Unhealthy", SECOND: "Unhealthy"})
        self.wait_text(f"GPU {FIRST} is not healthy: the driver: GPU is lost")
        self.tell(f"back {FIRST}")
        self.wait_list(plugin, lambda health: health == {FIRST: "Healthy", SECOND: "Unhealthy"})
        self.assertEqual(self.text().count("is not healthy:") - 1, 2)

    def test_health_without_the_driver_is_the_nodes(self):
        plugin = self.begin(env={"SIM_NVML": "/nonexistent/fifo"})
        self.wait_text("only the device nodes tell")
        os.unlink(os.path.join(self.folder, "nvidia1"))
        self.wait_list(plugin, lambda health: health == {FIRST: "Healthy", SECOND: "Unhealthy"})
        open(os.path.join(self.folder, "nvidia1"), "w").close()  # pylint: disable=consider-using-with
        self.wait_list(plugin, lambda health: set(health.values()) == {"Healthy"})

    def test_kubelet_restarts(self):
        plugin = self.begin()
        for i in range(kit.OPTIONS.restarts):
            plugin.next_list()
            if i % 3 == 0:
                plugin.allocate([f"{FIRST}::0"])
            self.kubelet.stop()
            plugin.close()
            self.kubelet.start()
            plugin = self.kubelet.plugin()
        self.wait_list(plugin, lambda health: health == {FIRST: "Healthy", SECOND: "Healthy"})
        descriptors = os.listdir(f"/proc/{self.process.pid}/fd")
        self.assertLess(len(descriptors), 20)
        plugin.close()

    def test_kubelet_comes_late_refuses_and_closes_in_the_middle(self):
        self.start()
        self.wait_text("waiting for kubelet")
        listener = socket.socket(socket.AF_UNIX)  # takes the connection and closes it
        listener.bind(os.path.join(self.sockets, "kubelet.sock"))
        listener.listen()
        listener.accept()[0].close()
        self.wait_text("did not accept gpushare.dev/gpu: the connection ended without an answer")
        connection = listener.accept()[0]
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        self.wait_text("kubelet.sock: the peer's bytes are not HTTP/2")
        connection.close()
        listener.close()
        self.kubelet.refuse = (grpc.StatusCode.INVALID_ARGUMENT, "the resource's name is ugly: \u00e4")
        self.kubelet.start()
        plugin = self.kubelet.plugin()
        self.wait_text(r"did not accept gpushare.dev/gpu: the resource's name is ugly: ä \(3\)")
        plugin.next_list()
        plugin.close()

    def test_a_socket_that_is_removed_comes_back(self):
        plugin = self.begin()
        plugin.next_list()
        os.unlink(os.path.join(self.sockets, "gpushare.sock"))
        again = self.kubelet.plugin()
        self.assertEqual(len(again.next_list()), 20)
        again.close()
        plugin.close()

    def test_the_folder_is_removed_and_comes_back(self):
        plugin = self.begin()
        plugin.next_list()
        self.kubelet.stop()
        plugin.close()
        os.rename(self.sockets, self.sockets + ".old")
        self.wait_text("waiting for it")
        os.mkdir(self.sockets)
        self.kubelet.start()
        # which of kubelet's start and the plugin's socket came first is open; a socket that kubelet removed is made again
        plugin = self.kubelet.plugin()
        self.assertEqual(len(plugin.next_list()), 20)
        plugin.close()

    def test_a_watch_that_ends_is_told_again(self):
        plugin = self.begin()
        plugin.next_list()
        plugin.close()
        again = self.kubelet.plugin()
        self.assertEqual(len(again.next_list()), 20)
        again.close()

    def test_bytes_that_are_no_http2_are_logged_and_harm_nobody(self):
        plugin = self.begin()
        plugin.next_list()
        path = os.path.join(self.sockets, "gpushare.sock")
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for data in (b"GET / HTTP/1.1\r\n\r\n", preface + b"\xff" * 100, preface + b"\0\0\0\4\0\0\0\0\0\0\0\5\0\0\0\0\0\1abcde"):
            with socket.socket(socket.AF_UNIX) as raw:
                raw.settimeout(PATIENCE)
                raw.connect(path)
                raw.sendall(data)
                while raw.recv(4096):
                    pass
        self.wait_text("a connection of kubelet: the peer's bytes are not HTTP/2: Received bad client magic")
        self.wait_text("(?s)not HTTP/2: PROTOCOL_ERROR.*not HTTP/2: PROTOCOL_ERROR")
        held = []
        for _ in range(12):  # more than it serves; those that say nothing keep nobody out
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(path)
        self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])), 1)
        for each in held:
            each.close()
        plugin.close()
        self.kubelet.plugin().close()

    def test_who_closes_one_half_gets_the_answer(self):
        self.begin().close()
        raw = self.raw()
        raw.sendall(request(1, "Allocate", kubelet.pack(kubelet.ALLOCATE, {"container_requests": [{"devices_ids": [f"{SECOND}::1"]}]})))
        raw.shutdown(socket.SHUT_WR)
        said = b""
        while True:
            data = raw.recv(65536)
            if not data:
                break
            said += data
        self.assertIn(f"gpushare.dev/gpu={SECOND}".encode(), said)

    def test_who_does_not_read_is_not_read(self):
        """What it sends waits in its socket, not in the plugin's memory; others are served."""
        plugin = self.begin()
        plugin.next_list()
        raw = self.raw()
        raw.setblocking(False)
        sent, asked, left = 0, 0, b""
        until = time.monotonic() + 10
        while time.monotonic() < until and sent < 64 << 20:
            if not left:
                left = b"".join(headers(asked * 2 + i, "Allocate") for i in range(1, 800, 2))  # more calls than it takes at a time
                asked += 400
            try:
                done = raw.send(left)
                sent, left = sent + done, left[done:]
            except BlockingIOError:
                time.sleep(0.05)
        self.assertLess(sent, 16 << 20)
        self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])), 1)
        raw.settimeout(PATIENCE)
        refused = b"\0\0\4\3"  # RST_STREAM
        said = b""
        while said.count(refused) < asked // 2:
            data = raw.recv(1 << 20)
            self.assertTrue(data, "it was closed: " + self.text())
            said += data
        plugin.close()

    def test_huge_requests_are_refused_or_answered_in_bounded_memory(self):
        plugin = self.begin("--per-gpu", "100")
        plugin.next_list()
        function = {name: plugin.channel.unary_unary("/v1beta1.DevicePlugin/" + name) for name in ("Allocate", "GetPreferredAllocation")}
        most = (1 << 20) - 16
        for name, each in (("Allocate", b"\x0a\0"), ("GetPreferredAllocation", b"\x0a\0"), ("GetPreferredAllocation", b"\x0a\2\x18\0"),
                           ("Allocate", b"\x0a\2\x0a\0"), ("Allocate", b"\x0a\4\x0a\2\xff\xff")):
            self.refused(lambda name=name, each=each: function[name](each * (most // len(each)), timeout=PATIENCE),
                         grpc.StatusCode.INVALID_ARGUMENT, "")
        one = kubelet.pack(kubelet.PREFERRED, {"container_requests": [{"available_deviceIDs": [f"{FIRST}::0"] * 20000, "allocation_size": 1}]})
        self.assertIn(FIRST.encode(), function["GetPreferredAllocation"](one, timeout=PATIENCE))
        over = {"container_requests": [{"available_deviceIDs": [f"{FIRST}::{i}" for i in range(4)],
                                        "must_include_deviceIDs": [f"{FIRST}::1", f"{FIRST}::2"], "allocation_size": 1}]}
        self.refused(lambda: function["GetPreferredAllocation"](kubelet.pack(kubelet.PREFERRED, over), timeout=PATIENCE),
                     grpc.StatusCode.INVALID_ARGUMENT, "must be among")
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            peak = int(re.search(r"VmHWM:\s+(\d+)", file.read()).group(1))
        if not kit.sanitized(self.build):
            self.assertLess(peak, 100 << 10)  # KiB
        plugin.close()

    def test_a_flood_of_files_in_the_folder_hides_nothing(self):
        """More events than the kernel keeps, and kubelet's start among them."""
        with open("/proc/sys/fs/inotify/max_queued_events", encoding="ascii") as file:
            most = int(file.read())
        plugin = self.begin()
        plugin.next_list()  # it is watched, which the plugin must see before that ends
        plugin.close()
        self.wait_text("registering again")
        self.kubelet.stop()
        self.process.send_signal(signal.SIGSTOP)
        name = os.path.join(self.sockets, "x")
        for _ in range(most // 2 + 1):
            open(name, "w").close()  # pylint: disable=consider-using-with
            os.unlink(name)
        self.kubelet.start()  # which removes the plugin's socket, too
        self.process.send_signal(signal.SIGCONT)
        again = self.kubelet.plugin()
        self.assertEqual(len(again.next_list()), 20)
        self.wait_text(": events were lost")
        again.close()

    def test_another_plugin_with_the_same_gpus_is_named(self):
        pods = kubelet.PodResources(os.path.join(self.folder, "pods.sock"),
                                    [("nvidia.com/gpu", [SECOND + "::2", "GPU-other"]), ("gpushare.dev/gpu", [FIRST + "::0"])])
        self.addCleanup(pods.stop)
        self.begin().close()
        self.wait_text(f"GPU {SECOND} is also given out as nvidia.com/gpu")
        self.assertNotIn(f"GPU {FIRST} is also", self.text())
        open(os.path.join(self.sockets, "nvidia-gpu.sock"), "w").close()  # pylint: disable=consider-using-with
        self.wait_text("NVIDIA's device plugin seems to run here too")

    def test_sigterm_drains(self):
        plugin = self.begin()
        plugin.next_list()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(PATIENCE), 0, self.text())
        self.assertEqual(plugin.next_list(), "end")  # the stream has an end and no error
        self.assertFalse(os.path.exists(os.path.join(self.sockets, "gpushare.sock")))
        self.assertIn("running pods keep their GPUs", self.text())

    def test_sigterm_waits_until_the_other_side_has_closed(self):
        """What it says last would be lost to a kubelet that is just writing, if it closed at once."""
        self.begin()
        peer = socket.socket(socket.AF_UNIX)
        self.addCleanup(peer.close)
        peer.settimeout(PATIENCE)
        peer.connect(os.path.join(self.sockets, "gpushare.sock"))
        peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))  # with settings of its own
        self.assertTrue(peer.recv(4096))
        self.process.send_signal(signal.SIGTERM)
        while peer.recv(4096):
            pass
        peer.sendall(bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8))  # a ping
        peer.close()
        self.assertEqual(self.process.wait(PATIENCE), 0, self.text())

    def test_usage(self):
        for words, said in ((["--per-gpu", "0"], "per-gpu"), (["--answer", "x"], "answer"), (["more"], "unexpected argument"),
                            (["--resource", "gpu"], "such a name is like gpushare.dev/gpu")):
            done = subprocess.run([os.path.join(self.build, "cluster", "gpushare-device-plugin"), *words], capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(said, done.stderr)
        for text, said in (("{", "line 1"), ("{}", "no specification of kind"), ('{"kind": "gpushare.dev/gpu", "devices": []}', "names no GPU"),
                           (None, "is not there; write it with")):
            if text is None:
                os.unlink(self.spec)
            else:
                with open(self.spec, "w", encoding="ascii") as file:
                    file.write(text)
            done = subprocess.run([os.path.join(self.build, "cluster", "gpushare-device-plugin"), "--cdi", self.spec],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(said, done.stderr)


if __name__ == "__main__":
    kit.main(restarts=20)

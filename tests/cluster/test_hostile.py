#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpushare-device-plugin with a kubelet that breaks the protocol, floods it, or is not alone, by bytes that are made by hand.
test_hostile.py --build DIR"""
import os
import pathlib
import re
import signal
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from running import (CONTINUATION, DATA, FIRST, HEADERS, PING, RST_STREAM, SECOND, SETTINGS, WINDOW_UPDATE, PluginTest,  # noqa: E402
                     frame, headers, request)
import kit  # noqa: E402
import kubelet  # noqa: E402
from kubelet import PATIENCE, wait_for  # noqa: E402
import grpc  # noqa: E402

FLOOD = 5.0  # seconds that a flood lasts at most
FLOOD_MOST = 32 << 20  # bytes of it
SETTLED_KIB = 4 << 10  # resident after any of it


class Hostile(PluginTest):
    def memory(self, name):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            return int(re.search(name + r":\s+(\d+)", file.read()).group(1))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def flood(self, raw, piece):
        """Sends a piece again and again and reads the answers, until the plugin has had enough or the time is over."""
        until, sent, left = time.monotonic() + FLOOD, 0, b""
        raw.setblocking(False)
        try:
            while time.monotonic() < until and sent < FLOOD_MOST:
                if not left:
                    left = piece()
                try:
                    done = raw.send(left)
                    sent, left = sent + done, left[done:]
                except BlockingIOError:
                    time.sleep(0.001)
                try:
                    while raw.recv(1 << 20):
                        pass
                    return sent
                except BlockingIOError:
                    pass
        except OSError:  # it closed
            pass
        return sent

    def settles(self, plugin, descriptors, most=16 << 10):
        """Others are served, and what the flood took is free again."""
        self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])[0]["cdi_devices"]), 1)
        wait_for(lambda: self.descriptors() <= descriptors, self.text)
        if not kit.sanitized(self.build):
            self.assertLess(self.memory("VmHWM"), most)
            wait_for(lambda: self.memory("RssAnon") < SETTLED_KIB // 2, lambda: f"{self.memory('RssAnon')} KiB stay")
        self.assertLess(len(self.text()), 100000)

    def test_floods_take_no_memory_and_harm_nobody(self):
        plugin = self.begin()
        plugin.next_list()
        plugin.allocate([f"{FIRST}::0"])
        descriptors = self.descriptors()
        stream = [1]

        def reset():  # rapid reset: a call, and at once its end
            out = b""
            for _ in range(100):
                out += request(stream[0], "Allocate", b"") + frame(RST_STREAM, 0, stream[0], b"\0\0\0\x08")
                stream[0] += 2
            return out

        def bomb():  # a call with thousands of headers
            stream[0] += 2
            many = b"\x40\x01a\x7f\x81\x3f" + b"x" * 320 + b"\xbe" * 15000  # one long header, then its number again and again
            return frame(HEADERS, 4, stream[0], many)

        def endless():  # a call whose headers do not end
            stream[0] += 2
            return frame(HEADERS, 0, stream[0], b"\0\1a\1b") + frame(CONTINUATION, 0, stream[0], b"\0\1a\1b" * 4000) * 50

        floods = {
            "settings": lambda: frame(SETTINGS, 0, 0, b"\0\4\0\0\xff\xff" * 100) * 10,
            "settings without end": lambda: frame(SETTINGS) * 1000,
            "pings": lambda: frame(PING, 0, 0, bytes(8)) * 1000,
            "window updates": lambda: frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1") * 1000,
            "rapid reset": reset,
            "many headers": bomb,
            "headers without end": endless,
            "empty data": lambda: frame(DATA, 0, 1) * 1000,
            "unknown frames": lambda: frame(200, 0, 0, bytes(1000)) * 100,
            "priorities": lambda: b"".join(frame(2, 0, each, b"\0\0\0\0\x10") for each in range(1, 2001, 2)),
        }
        for name, piece in floods.items():
            with self.subTest(name):
                stream[0] = 1
                raw = self.raw()
                if name == "empty data":
                    raw.sendall(headers(1, "Allocate"))
                sent = self.flood(raw, piece)
                raw.close()
                self.assertGreater(sent, 0)
                self.settles(plugin, descriptors)
        plugin.close()

    def test_calls_that_never_end_hold_little(self):
        """On each connection as many calls as are allowed, each with a request that stays without its end."""
        plugin = self.begin()
        plugin.next_list()
        descriptors = self.descriptors()
        held = []
        for _ in range(6):
            raw = self.raw()
            raw.setblocking(False)
            left = b"".join(headers(each, "Allocate") for each in range(1, 33, 2))
            left += b"".join(frame(DATA, 0, each, b"\0\0\x0f\xff\xff" + bytes(16000)) for _ in range(60) for each in range(1, 33, 2))
            until = time.monotonic() + 3
            while left and time.monotonic() < until:
                try:
                    left = left[raw.send(left):]
                except BlockingIOError:
                    time.sleep(0.01)
                try:
                    raw.recv(1 << 16)
                except BlockingIOError:
                    pass
            held.append(raw)
        for raw in held:
            raw.close()
        self.settles(plugin, descriptors, most=32 << 10)
        plugin.close()

    def test_window_that_is_shut_keeps_the_answer_small(self):
        """A watcher that lets nothing be sent, while a GPU's health changes and changes."""
        plugin = self.begin("--per-gpu", "100")
        plugin.next_list()
        raw = self.raw()
        raw.sendall(frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0") + request(1, "ListAndWatch", b""))
        for i in range(8):
            self.tell(f"{'back' if i % 2 else 'lost'} {SECOND}")
            self.wait_list(plugin, lambda health, i=i: health[SECOND] == ("Healthy" if i % 2 else "Unhealthy"))
        if not kit.sanitized(self.build):
            self.assertLess(self.memory("VmHWM"), 16 << 10)
        raw.sendall(frame(WINDOW_UPDATE, 0, 1, b"\x00\x00\x00\x00"))  # of nothing: an error of the stream
        raw.close()
        self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])), 1)
        plugin.close()

    def test_connections_that_say_nothing_keep_kubelet_out_for_no_time(self):
        self.kubelet.start()
        self.start()
        self.wait_text("kubelet knows")
        held = []
        for _ in range(20):
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(os.path.join(self.sockets, "gpushare.sock"))
        for _ in range(10):  # on a busy machine they may still fill the queue; kubelet tries again, too
            plugin = self.kubelet.plugin()
            devices = plugin.next_list()
            if not isinstance(devices, grpc.RpcError):
                break
            plugin.close()
        self.assertEqual(len(devices), 20)
        for _ in range(20):  # a watch is never given up for them
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].connect(os.path.join(self.sockets, "gpushare.sock"))
        self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])), 1)
        self.assertTrue(plugin.lists.empty(), self.text())
        for each in held:
            each.close()
        plugin.close()

    def test_many_ids(self):
        plugin = self.begin("--per-gpu", "100")
        everything = list(plugin.next_list())
        wrong = grpc.StatusCode.INVALID_ARGUMENT
        self.refused(lambda: plugin.allocate(everything), wrong, f"asks for {len(everything)} GPUs and there are 2")
        self.refused(lambda: plugin.allocate([f"{FIRST}::0"] * 5000), wrong, "asks for 5000 GPUs")
        self.refused(lambda: plugin.allocate([f"{FIRST}::0", f"{FIRST}::0"]), wrong, "twice")
        self.refused(lambda: plugin.allocate([f"{FIRST}::0"], [f"{FIRST}::0", "x"]), grpc.StatusCode.NOT_FOUND, "there is no device x")
        self.refused(lambda: plugin.allocate(*[[f"{FIRST}::0"]] * 257), wrong, "a request has 257 containers")
        self.assertEqual(len(plugin.allocate(*[[f"{FIRST}::0", f"{SECOND}::0"]] * 256)), 256)
        self.assertEqual(plugin.allocate(), [])
        self.assertEqual(plugin.allocate([])[0]["cdi_devices"], [])
        self.assertEqual(sorted(plugin.prefer(everything, len(everything))), sorted(everything))
        plugin.close()

    # --- kubelet's folder

    def test_two_plugins_do_not_fight(self):
        """The second one waits, in words, until the first has ended."""
        plugin = self.begin()
        plugin.next_list()
        first = self.process
        log = self.log
        self.log = os.path.join(self.folder, "second")
        self.start()
        self.wait_text("another gpushare-device-plugin serves .*; waiting until it ends")
        time.sleep(2)
        self.assertTrue(self.kubelet.registered.empty())
        self.assertTrue(plugin.lists.empty())
        self.assertEqual(self.text().count("\n"), self.text().count("GPU ") + 1, self.text())
        with open(log, encoding="utf-8") as file:
            self.assertNotIn("was removed", file.read())
        first.kill()
        first.wait()
        again = self.kubelet.plugin()
        self.assertEqual(len(again.next_list()), 20)
        again.close()
        plugin.close()

    def test_a_socket_that_something_else_replaces_comes_back(self):
        plugin = self.begin()
        plugin.next_list()
        own = os.path.join(self.sockets, "gpushare.sock")

        def file(path):
            with open(path, "w", encoding="ascii") as out:
                out.write("x")

        def dead(path):
            with socket.socket(socket.AF_UNIX) as other:
                other.bind(path)

        def link(path):
            os.symlink("/nonexistent", path)

        for make in (file, dead, link):
            with self.subTest(make.__name__):
                make(os.path.join(self.folder, "other"))
                os.rename(os.path.join(self.folder, "other"), own)
                again = self.kubelet.plugin()
                # the first watch goes on: its connection is older than the file
                self.assertEqual(len(again.next_list()), 20)
                again.close()
        plugin.close()

    def test_a_socket_that_is_replaced_while_kubelet_is_told(self):
        """At any moment, also between the event of the folder and the look at the socket: each time kubelet is told again. The
        connection by hand keeps the plugin busy, so that it is at any place."""
        plugin = self.begin()
        plugin.next_list()
        own = os.path.join(self.sockets, "gpushare.sock")
        raw = self.raw()
        stop = threading.Event()

        def ping():
            while not stop.is_set():
                raw.sendall(frame(PING, 0, 0, bytes(8)))
                raw.recv(4096)

        pings = threading.Thread(target=ping)
        pings.start()
        try:
            for number in range(50):
                os.symlink("/nonexistent", os.path.join(self.folder, "other"))
                os.rename(os.path.join(self.folder, "other"), own)
                self.kubelet.next_registration(lambda number=number: f"not told after {number} times:\n{self.text()}")
        finally:
            stop.set()
            pings.join()
        plugin.close()

    def test_a_directory_at_the_sockets_path_is_waited_out(self):
        """Before the start and while it runs: said once each time. Who watches is served meanwhile, and SIGTERM is obeyed."""
        own = os.path.join(self.sockets, "gpushare.sock")
        said = re.escape(own) + " is a directory: remove it; trying again"
        self.kubelet.start()
        os.mkdir(own)
        self.start()
        self.wait_text(said)
        time.sleep(1.5)  # more than FOLDER_WAIT
        self.assertTrue(self.kubelet.registered.empty())
        os.rmdir(own)
        plugin = self.kubelet.plugin()
        self.assertEqual(len(plugin.next_list()), 20)
        for last in (False, True):
            before = self.text().count("is a directory")
            while not os.path.isdir(own):
                os.unlink(own)
                try:
                    os.mkdir(own)
                except FileExistsError:  # the plugin was faster
                    pass
            wait_for(lambda before=before: self.text().count("is a directory") > before, self.text)
            time.sleep(1.5)
            self.assertEqual(len(re.findall(said, self.text())), before + 1, self.text())
            self.assertEqual(len(plugin.allocate([f"{FIRST}::0"])), 1)
            if last:
                break
            while not self.kubelet.registered.empty():
                self.kubelet.registered.get()
            os.rmdir(own)
            again = self.kubelet.plugin()
            self.assertEqual(len(again.next_list()), 20)
            again.close()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(PATIENCE), 0, self.text())
        self.assertEqual(sorted(os.listdir(self.sockets)), ["gpushare.sock", "kubelet.sock"])

    def test_a_path_that_comes_and_goes(self):
        """The plugin lives, makes its socket again at most each 100 ms, and is registered afterwards."""
        plugin = self.begin()
        plugin.next_list()
        own = os.path.join(self.sockets, "gpushare.sock")
        start = time.monotonic()
        while self.process.poll() is None and time.monotonic() < start + PATIENCE and (
                time.monotonic() < start + 1 or self.text().count("made again") < 2):
            try:
                os.unlink(own)
            except FileNotFoundError:
                pass
            try:
                os.close(os.open(own, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            except FileExistsError:
                pass
        made = self.text().count("made again")
        self.assertLessEqual(made, (time.monotonic() - start) / 0.1 + 1, self.text())
        wait_for(lambda: pathlib.Path(own).is_socket(), self.text)
        wait_for(lambda: self.text().rfind("kubelet knows") > self.text().rfind("made again"), self.text)
        self.assertGreater(self.text().count("made again"), 1)
        again = self.kubelet.plugin()
        self.assertEqual(len(again.next_list()), 20)
        again.close()
        plugin.close()

    def test_kubelets_socket_is_something_else_for_a_while(self):
        path = os.path.join(self.sockets, "kubelet.sock")
        with open(path, "w", encoding="ascii"):
            pass
        self.start()
        self.wait_text("waiting for kubelet")
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(path)
        time.sleep(0.3)
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as deaf:  # takes the connection and says nothing, and its backlog is full
            deaf.bind(path)
            deaf.listen(0)
            time.sleep(0.3)
            self.kubelet.start()
        plugin = self.kubelet.plugin()
        self.assertEqual(len(plugin.next_list()), 20)
        plugin.close()

    def test_kubelet_dies_while_it_is_told(self):
        """It accepts, reads or answers half, and is gone, with its socket or without it; connections of some stay open."""
        self.start()
        self.wait_text("waiting for kubelet")
        descriptors, held = self.descriptors(), []
        path = os.path.join(self.sockets, "kubelet.sock")
        for i in range(60):
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                listener.settimeout(PATIENCE)
                connection = listener.accept()[0]
                if i % 2:
                    connection.settimeout(PATIENCE)
                    self.assertTrue(connection.recv(100))
                if i % 3 == 1:
                    connection.sendall(frame(SETTINGS) + b"\0\0")
                if i % 5 == 0:
                    held.append(connection)
                else:
                    connection.close()
                os.unlink(path)
        self.assertLessEqual(self.descriptors(), descriptors + 2)
        self.kubelet.start()
        plugin = self.kubelet.plugin()
        self.assertEqual(len(plugin.next_list()), 20)
        for each in held:
            each.close()
        plugin.close()

    # --- a kubelet that does the one thing and not the other

    def test_kubelet_that_does_not_watch_is_told_again(self):
        """An older kubelet answers first and then connects; what goes wrong then is not told to the plugin."""
        self.kubelet.start()
        self.start("--watch-within", "2")
        self.kubelet.registered.get(timeout=PATIENCE)
        self.kubelet.registered.get(timeout=PATIENCE)
        self.wait_text("does not watch the devices")
        plugin = self.kubelet.plugin()
        self.assertEqual(len(plugin.next_list()), 20)
        plugin.close()

    def test_kubelet_that_ends_each_watch_is_told_ever_more_rarely(self):
        self.kubelet.start()
        self.start()
        count, until = 0, time.monotonic() + 10
        while time.monotonic() < until or count < 3:
            try:
                self.kubelet.registered.get(timeout=max(0.01, until - time.monotonic()) if count > 2 else PATIENCE)
            except kubelet.queue.Empty:
                break
            count += 1
            raw = self.raw()
            raw.sendall(request(1, "ListAndWatch", b""))
            raw.recv(65536)
            raw.close()
        self.assertGreater(count, 2)
        self.assertLess(count, 12, self.text())

    def test_a_daemon_that_hangs_holds_nothing_up(self):
        path = os.path.join(self.folder, "lockd.sock")
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as deaf:
            deaf.bind(path)
            deaf.listen(20)
            deaf.setblocking(False)
            plugin = self.begin()
            everything = list(plugin.next_list())
            start, asked = time.monotonic(), 0
            for _ in range(20):
                self.assertEqual(len(plugin.prefer(everything, 1)), 1)
                try:
                    deaf.accept()[0].close()
                    asked += 1
                except BlockingIOError:
                    pass
            self.assertTrue(1 <= asked <= 1 + (time.monotonic() - start) / 30, asked)  # LOAD_PAUSE
        self.wait_text("the load of the GPUs is not known")
        plugin.close()

    # --- rights, ends

    def test_only_its_user_may_connect(self):
        self.kubelet.start()
        before = os.umask(0)
        try:
            self.start()
        finally:
            os.umask(before)
        self.kubelet.plugin().close()
        self.assertEqual(os.stat(os.path.join(self.sockets, "gpushare.sock")).st_mode & 0o077, 0)

    def test_sigterm_ends_open_streams_and_unfinished_calls(self):
        plugin = self.begin()
        plugin.next_list()
        raw = self.raw()
        raw.sendall(headers(1, "Allocate") + frame(DATA, 0, 1, b"\0\0\0"))  # the rest does not come
        silent = self.raw()
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(PATIENCE), 0, self.text())
        self.assertEqual(plugin.next_list(), "end")
        silent.close()
        plugin.close()

    def test_sigterm_answers_what_has_begun(self):
        """A request whose end comes after SIGTERM."""
        self.begin()
        raw = self.raw()
        message = kubelet.pack(kubelet.ALLOCATE, {"container_requests": [{"devices_ids": [f"{SECOND}::1"]}]})
        body = b"\0" + len(message).to_bytes(4, "big") + message
        raw.sendall(headers(1, "Allocate") + frame(DATA, 0, 1, body[:4]))
        raw.sendall(frame(PING, 0, 0, bytes(8)))
        said = b""
        while frame(PING, 1, 0, bytes(8)) not in said:  # it has seen all of it
            said += raw.recv(4096)
        self.process.send_signal(signal.SIGTERM)
        self.wait_text("running pods keep their GPUs")
        time.sleep(0.5)
        raw.sendall(frame(DATA, 1, 1, body[4:]))
        while f"gpushare.dev/gpu={SECOND}".encode() not in said:
            data = raw.recv(4096)
            self.assertTrue(data, self.text())
            said += data
        raw.close()
        self.assertEqual(self.process.wait(PATIENCE), 0)

    def test_an_event_is_told_at_once(self):
        """Not only when the GPUs are looked at the next time."""
        plugin = self.begin("--period", "3600")
        plugin.next_list()
        self.tell(f"xid {SECOND} 79")
        self.wait_list(plugin, lambda health: health == {FIRST: "Healthy", SECOND: "Unhealthy"})
        plugin.close()


if __name__ == "__main__":
    kit.main()

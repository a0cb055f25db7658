#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gpusharectl serve: the page, its token, what it refuses, and callers that do not behave.

usage: test_serve.py GPUSHARE_LOCKD GPUSHARECTL [unittest options]"""
import glob
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from fake import GIB, PATIENCE, RUNNING, WANT, Daemon, Program, settle_all, wait_for

LOCKD, CTL = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
EVIL = "<img src=x>"


class ServeTest(unittest.TestCase):
    def setUp(self):
        self.daemon = Daemon(LOCKD)
        self.addCleanup(self.daemon.process.kill)
        self.programs = [Program(self.daemon.path, name=name) for name in ("train", EVIL)]
        for program in self.programs:
            program.say(flags=WANT, demand=GIB)
        settle_all(self.programs, lambda: all(p.flags & RUNNING for p in self.programs))
        self.server, self.port, self.token = self.serve()

    def tearDown(self):
        self.server.terminate()
        self.assertEqual(self.server.wait(PATIENCE), 0)
        self.assertNotIn("Sanitizer", self.server.stderr.read())
        for program in self.programs:
            program.close()
        self.daemon.end()
        shutil.rmtree(self.daemon.folder)

    def serve(self, *options, listen="127.0.0.1:0"):
        server = subprocess.Popen([CTL, "--socket", self.daemon.path, "serve", "--listen", listen, *options], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.stderr.close)
        self.addCleanup(server.kill)
        found = re.match(r"serving http://[^/]*:(\d+)/(?:\?token=([0-9a-f]{32})$)?", server.stdout.readline())
        return server, int(found[1]), found[2]

    def send(self, request, port=None):
        with socket.create_connection(("127.0.0.1", port or self.port), PATIENCE) as caller:
            caller.sendall(request)
            data = b""
            while more := caller.recv(65536):
                data += more
            return data.decode()

    def get(self, path, host=None, token="", cookie="", method="GET", port=None):
        """(status, headers, body); token "": the right one."""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host or 'localhost'}"]
        token = self.token if token == "" else token
        if token:
            lines.append(f"Authorization: Bearer {token}")
        if cookie:
            lines.append(f"Cookie: {cookie}")
        head, body = self.send("\r\n".join(lines + ["", ""]).encode(), port).split("\r\n\r\n", 1)
        return int(head.split()[1]), head, body

    def test_nothing_is_served_without_the_token(self):
        for path in ("/", "/metrics", "/status.json", "/history.json", "/trace.json", "/nothing"):
            for token in (None, "0" * 32, self.token[:-1], self.token + "0", self.token.upper() + "x"):
                self.assertEqual(self.get(path, token=token)[0], 401, (path, token))
            self.assertEqual(self.get(path, token=None, cookie=f"gpushare_token_{self.port}=" + "0" * 32)[0], 401, path)
        for path in ("/?token=", "/?token=" + "0" * 32, f"/metrics?token={self.token}", f"/?xtoken={self.token}x"):
            self.assertEqual(self.get(path, token=None)[0], 401, path)

    def test_bare_address_tells_how_to_get_in(self):
        status, head, body = self.get("/", token=None)
        self.assertEqual(status, 401)
        self.assertIn("text/html", head)
        self.assertIn("Open the address that <code>gpusharectl serve</code> printed", body)
        self.assertNotIn(self.token, body)
        self.assertNotIn("Open the address", self.get("/status.json", token=None)[2])

    def test_words_are_explained(self):
        words = json.loads(self.get("/words.json")[2])
        for word in ("capacity", "leases", "quantum", "pinned", "external", "unprepared"):
            self.assertIn(" ", words[word])

    def test_token_in_the_address_becomes_a_cookie(self):
        status, head, _ = self.get(f"/?token={self.token}", token=None)
        self.assertEqual(status, 303)
        self.assertIn("\r\nLocation: /\r\n", head + "\r\n")
        cookie = re.search(r"Set-Cookie: (gpushare_token_%d=[^;]*); Path=/; HttpOnly; SameSite=Strict" % self.port, head)[1]
        status, head, body = self.get("/", token=None, cookie="other=1; " + cookie)
        self.assertEqual((status, "<title>gpushare</title>" in body), (200, True))
        self.assertEqual(self.get("/", token=None, cookie=cookie.replace(str(self.port), "1"))[0], 401)  # of another port

    def test_page_runs_its_own_script_only(self):
        first, second = (self.get("/") for _ in range(2))
        for status, head, body in (first, second):
            nonce = re.search(r"script-src 'nonce-([0-9a-f]{32})'", head)[1]
            self.assertEqual((status, body.count(nonce), body.count("NONCE")), (200, 2, 0))
            self.assertIn("default-src 'none'", head)
        self.assertNotEqual(first[1], second[1])
        self.assertNotRegex(first[2], r"innerHTML|https?://(?!www\.w3\.org/2000/svg)")  # no foreign things, no HTML from names

    def test_host_of_another_name_is_refused(self):
        for host in ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "x" * 1000, "[evil.example]", "[::1].evil.example", "[]", "[::1"):
            with self.subTest(host=host):
                request = f"GET /metrics HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {self.token}\r\n\r\n"
                self.assertTrue(self.send(request.encode()).startswith("HTTP/1.1 421 "))
        for host in ("localhost", f"LOCALHOST:{self.port}", f"127.0.0.1:{self.port}", "[::1]:80"):
            self.assertEqual(self.get("/metrics", host=host)[0], 200, host)
        for names in (("evil.example", "localhost"), ("localhost", "evil.example")):  # a proxy may look at the other one
            self.assertEqual(self.get("/metrics", host="\r\nHost: ".join(names))[0], 400)
        server, port, token = self.serve("--host", "gpu.example")
        self.assertEqual(self.get("/metrics", host="gpu.example:443", port=port, token=token)[0], 200)
        server.kill()

    def test_figures_are_those_of_status(self):
        status, head, body = self.get("/status.json")
        self.assertEqual((status, json.loads(body)["running"]), (200, True))
        self.assertEqual({p["name"] for p in json.loads(body)["devices"][0]["programs"]}, {"train", EVIL})
        self.assertIn(f"Content-Length: {len(body.encode())}", head)
        self.assertEqual(self.get("/status.json", method="HEAD")[2], "")
        self.assertIn("gpushare_up 1", self.get("/metrics")[2])
        wait_for(lambda: len(json.loads(self.get("/history.json")[2])) > 1, PATIENCE, "two samples")
        sample = json.loads(self.get("/history.json")[2])[0]
        self.assertEqual({(p["pid"], p["name"]) for p in sample["programs"]}, {(os.getpid(), "train"), (os.getpid(), EVIL)})
        self.assertAlmostEqual(sample["time"], time.time(), delta=PATIENCE)

    def test_figures_are_of_the_moment_when_they_are_asked(self):
        """Not those of the last second: rates would be wrong."""
        def connected():
            """The program's time as shown, and the times between which that was so."""
            begin = time.monotonic()
            shown = re.search(r'(?m)^gpushare_program_connected_seconds{[^}]*name="train"[^}]*} (\S+)$', self.get("/metrics")[2])[1]
            return float(shown), begin - 0.15, time.monotonic()

        for _ in range(3):
            first, first_begin, first_end = connected()
            time.sleep(0.3)
            second, begin, end = connected()
            self.assertTrue(begin - first_end <= second - first <= end - first_begin, (first, second))

    def test_trace_is_recorded_while_others_are_served(self):
        request = f"GET /trace.json?seconds=1 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), PATIENCE) as caller:
            caller.sendall(request.encode())
            self.assertEqual(self.get("/metrics")[0], 200)
            data = b""
            while more := caller.recv(65536):
                data += more
        head, body = data.decode().split("\r\n\r\n", 1)
        self.assertIn("attachment", head)
        self.assertIn("traceEvents", json.loads(body))

    def test_head_of_a_trace_records_nothing(self):
        status, head, body = self.get("/trace.json?seconds=600", method="HEAD")
        self.assertEqual((status, body), (200, ""), head)

    def test_recording_ends_with_the_server(self):
        server, port, token = self.serve()
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as caller:
            caller.sendall(f"GET /trace.json?seconds=600 HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
            self.get("/metrics", port=port, token=token)  # it was started before this one was answered
            server.kill()
            begun = time.monotonic()
            while caller.recv(65536):
                pass
            self.assertLess(time.monotonic() - begun, 300)

    def test_caller_who_sends_too_much_reads_why(self):
        request = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.token}\r\nX: ".encode() + b"a" * 4_000_000 + b"\r\n\r\n"
        self.assertTrue(self.send(request).startswith("HTTP/1.1 431 "))

    def test_crowd_of_a_thousand(self):
        crowd = []
        for _ in range(1000):
            crowd.append(socket.socket())
            crowd[-1].setblocking(False)
            crowd[-1].connect_ex(("127.0.0.1", self.port))
        self.assertIn("gpushare_up 1", self.get("/metrics")[2])
        for caller in crowd:
            caller.close()
        self.assertIn("gpushare_up 1", self.get("/metrics")[2])

    def test_daemon_that_is_not_there(self):
        self.daemon.process.kill()
        self.daemon.process.wait()
        wait_for(lambda: not json.loads(self.get("/status.json")[2])["running"], PATIENCE, "the daemon's end to be seen")
        self.assertIn("gpushare_up 0", self.get("/metrics")[2])
        self.assertEqual(self.get("/trace.json")[0], 503)

    def test_bad_callers_cost_nothing(self):
        for request, code in ((b"POST /metrics HTTP/1.1\r\n\r\n", 405), (b"GET /metrics\r\n\r\n", 400), (b"GET " + b"A" * 8000, 431),
                              (b"\0\1\2\r\n\r\n", 400), (b"G" + b"\n" * 50, 405), (b"GET x HTTP/1.1\r\n\r\n", 400),
                              (b"GET  \r\n\r\n", 400), (b"HEAD / HTTP/1.1\r\n\r\n", 421)):
            self.assertTrue(self.send(request).startswith(f"HTTP/1.1 {code} "), request[:40])
        self.assertEqual(self.get("/../../etc/passwd")[0], 404)
        crowd = [socket.create_connection(("127.0.0.1", self.port)) for _ in range(60)]  # more than it has places; all silent
        crowd[0].sendall(b"GET /met")
        self.assertIn("gpushare_up 1", self.get("/metrics")[2])  # the silent ones make room
        for caller in crowd:
            caller.close()

    def test_token_of_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "token")
            for text, mode, good in (("A" * 20 + "\n", 0o600, True), ("A" * 20, 0o640, True), ("A" * 20, 0o644, False),
                                     ("short\n", 0o600, False), ("with space " * 3, 0o600, False),
                                     ("A" * 129 + "\n", 0o600, False)):
                with open(path, "w", encoding="ascii") as file:
                    file.write(text)
                os.chmod(path, mode)
                if good:
                    server, port, shown = self.serve("--token-file", path)
                    self.assertEqual((shown, self.get("/metrics", token="A" * 20, port=port)[0]), (None, 200))
                    server.kill()
                else:
                    refused = subprocess.run([CTL, "serve", "--token-file", path], capture_output=True, text=True, timeout=PATIENCE)
                    self.assertEqual((refused.returncode, path in refused.stderr), (1, True), refused)
            os.unlink(path)
            refused = subprocess.run([CTL, "serve", "--token-file", path], capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((refused.returncode, path in refused.stderr), (1, True), refused)

    @unittest.skipUnless(shutil.which("chromium"), "chromium is not installed")
    def test_browser_shows_the_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            shown = subprocess.run(["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}",
                                    "--virtual-time-budget=5000", "--dump-dom", f"http://127.0.0.1:{self.port}/?token={self.token}"],
                                   capture_output=True, text=True, timeout=PATIENCE)
            self.assertIn("train", shown.stdout, shown.stderr[-500:] + str(glob.glob(folder + "/*")))
            self.assertIn("&lt;img src=x&gt;", shown.stdout)  # a name is text
            self.assertNotIn(EVIL, shown.stdout)


if __name__ == "__main__":
    unittest.main()

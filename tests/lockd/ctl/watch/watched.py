# SPDX-License-Identifier: Apache-2.0
"""Programs that share a simulated card while gpusharectl serve shows it, and a Prometheus and a browser that look (standard
library only)."""
import base64
import contextlib
import json
import os
import re
import select
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../..")
sys.path.insert(0, os.path.join(TESTS, "runtime"))
from card import PATIENCE, Card, wait_for  # noqa: E402

TOKEN = "watched-by-a-test"
EVIL = "<img src=x onerror=alert(1)>"  # the longest name that the kernel shows in full has 31 bytes
QUANTUM_MS = 200
BUSY_PERCENT = 37  # what the simulated management library says of each card


class Watched(Card):
    """A card of 256 MiB, `gpusharectl serve` beside it: card.share("train", 0.7) starts a program."""

    def __init__(self, build, quantum_ms=QUANTUM_MS, nvml=True):
        """nvml: with the fake management library."""
        super().__init__(build, memory="256MiB", options=["--quantum", str(quantum_ms)], SIMCUDA_CONTEXT_MEMORY="64KiB",
                         SIMCUDA_KERNELS=os.path.join(build, "samples", "hog_standin.so"))
        self.token_file = os.path.join(self.folder, "token")
        with open(os.path.join(self.folder, "token"), "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(TOKEN + "\n")
        ctl = os.path.join(build, "lockd", "gpusharectl")
        self.server = self.start([ctl, "--socket", self.socket, "serve", "--listen", "127.0.0.1:0", "--token-file", self.token_file],
                                 **({"LD_LIBRARY_PATH": os.path.join(build, "tests/simcuda/nvml"), "SIMCUDA_BUSY": str(BUSY_PERCENT), "GPUSHARE_NVML_WAIT": "60"} if nvml else {}))
        self.port = int(re.match(r"serving http://[^/]*:(\d+)/", self.server.stdout.readline())[1])
        self.page = f"http://127.0.0.1:{self.port}/?token={TOKEN}"

    def share(self, name, share, seconds=600, cpu_ms=5):
        """A program of that name that works on so much of the card until the card is left."""
        path = os.path.join(self.folder, name)
        if not os.path.exists(path):
            subprocess.run([os.path.join(self.build, "rewriter", "gpushare-patch"), "-q", "-o", path,
                            os.path.join(self.build, "samples", "hog")], check=True, env=self.environment)
        return self.start([path, "--share", str(share), "--rounds", "1000000", "--seconds", str(seconds), "--cpu-ms", str(cpu_ms),
                           "--quiet"])

    def get(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", headers={"Authorization": "Bearer " + TOKEN})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.read().decode()

    def programs(self):
        return {p["name"]: p for device in json.loads(self.get("/status.json"))["devices"] for p in device["programs"]}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Prometheus:
    """One that scrapes the card's server each second, with its token."""

    def __init__(self, card):
        folder = os.path.join(card.folder, "prometheus")
        os.mkdir(folder)
        path = os.path.join(folder, "prometheus.yml")
        with open(path, "w", encoding="ascii") as file:
            file.write("global: {scrape_interval: 1s}\n"
                       "scrape_configs:\n"
                       "- job_name: gpushare\n"
                       f"  authorization: {{credentials_file: {card.token_file}}}\n"
                       f"  static_configs: [{{targets: ['127.0.0.1:{card.port}']}}]\n")
        self.address = f"127.0.0.1:{free_port()}"
        with open(os.path.join(folder, "log"), "wb") as log:
            self.process = subprocess.Popen(["prometheus", "--config.file", path, "--storage.tsdb.path", os.path.join(folder, "data"),
                                             "--web.listen-address", self.address, "--log.level", "warn"], stdout=log, stderr=log)
        card.children.append(self.process)
        if not wait_for(self.is_ready):
            with open(os.path.join(folder, "log"), encoding="utf-8") as log:
                raise RuntimeError(f"prometheus does not come up: {log.read()}")

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://{self.address}/-/ready", timeout=PATIENCE):
                return True
        except OSError:
            return False

    def ask(self, path, **parameters):
        """The data of an answer of its API; RuntimeError: it does not understand the question."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}",
                                        timeout=PATIENCE) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path} {parameters}: {error.read().decode()}") from error

    def scrapes(self):
        """How many there were."""
        result = self.ask("query", query="count_over_time(up[1h])")["result"]
        return int(result[0]["value"][1]) if result else 0


class Browser:
    """Debian's chromium without a window, steered by its DevTools protocol through a pipe: one page."""

    def __init__(self, folder, width=1120, height=900):
        self.folder, self.number, self.waiting, self.seen = folder, 0, b"", []
        to_browser, self.ask_fd = os.pipe()
        self.answer_fd, from_browser = os.pipe()
        # it reads from 3 and writes to 4
        command = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", command, "bash", str(to_browser), str(from_browser), "chromium", "--headless", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--disable-background-networking", f"--window-size={width},{height}",
             f"--user-data-dir={os.path.join(folder, 'chromium')}", "--remote-debugging-pipe", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "TMPDIR": folder})
        os.close(to_browser)
        os.close(from_browser)
        target = next(each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        self.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=folder, eventsEnabled=True)

    session = None

    def close(self):
        with contextlib.suppress(OSError, RuntimeError):
            self.call("Browser.close")
            self.process.wait(PATIENCE)
        os.close(self.ask_fd)
        os.close(self.answer_fd)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(os.path.join(self.folder, "chromium"), ignore_errors=True)

    def receive(self):
        while b"\0" not in self.waiting:
            if not select.select([self.answer_fd], [], [], PATIENCE)[0]:
                raise RuntimeError("chromium does not answer")
            data = os.read(self.answer_fd, 1 << 20)
            if not data:
                raise RuntimeError("chromium has ended")
            self.waiting += data
        one, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(one)

    def call(self, method, **parameters):
        self.number += 1
        asked = {"id": self.number, "method": method, "params": parameters}
        if self.session and not method.startswith(("Target.", "Browser.")):
            asked["sessionId"] = self.session
        os.write(self.ask_fd, json.dumps(asked).encode() + b"\0")
        while True:
            message = self.receive()
            if message.get("id") != self.number:
                self.seen.append(message)
                continue
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']}")
            return message["result"]

    def events(self, *methods):
        """Those that came until now."""
        self.call("Runtime.evaluate", expression="0")
        return [message["params"] for message in self.seen if message.get("method") in methods]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def show(self, address):
        self.call("Page.navigate", url=address)

    def wait(self, expression):
        if not wait_for(lambda: self.evaluate(expression)):
            raise RuntimeError(f"the page never had {expression}: {self.evaluate('document.body.innerText')}")

    def screenshot(self, path, scale=1):
        """The whole page as a PNG."""
        height = self.evaluate("Math.ceil(document.documentElement.getBoundingClientRect().height)")
        width = self.evaluate("window.innerWidth")
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": scale}
        data = self.call("Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))


def installed(*programs):
    """unittest's reason to skip, or None."""
    missing = [program for program in programs if not shutil.which(program)]
    return f"not installed: {', '.join(missing)} (scripts/setup.sh monitor installs them)" if missing else None

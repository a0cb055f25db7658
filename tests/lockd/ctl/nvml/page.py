# SPDX-License-Identifier: Apache-2.0
"""`gpusharectl serve` for a test, and what it answers."""
import os
import re
import subprocess
import sys
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
from fake import PATIENCE


def serve_page(test, ctl, environment, **more):
    """Starts it until the test ends. The process, and a function that returns the text of a path."""
    server = subprocess.Popen([ctl, "serve", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True, env=environment, **more)
    test.addCleanup(server.stdout.close)
    test.addCleanup(server.wait)
    test.addCleanup(server.kill)
    port, token = re.match(r"serving http://127\.0\.0\.1:(\d+)/\?token=(\S+)", server.stdout.readline()).groups()

    def get(path):
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": "Bearer " + token})
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.read().decode()

    return server, get

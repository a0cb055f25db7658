# SPDX-License-Identifier: Apache-2.0
"""Connections of callers that keep no promises, for the tests of hostile and of very many clients."""
import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from fake import END, GIB, PATIENCE  # noqa: E402  (in the folder above)

CARD_BYTES = 10 * GIB


def connect(path):
    other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    other.connect(path)
    other.settimeout(PATIENCE)
    return other


def drain(connection):
    """Reads until the other side hangs up; the END's text if there was one."""
    text, resets = None, 0
    while resets < 2:  # the first reset comes before what was said
        try:
            data = connection.recv(4096)
        except ConnectionResetError:
            resets += 1
            continue
        except OSError:
            break
        if not data:
            break
        if struct.unpack("<IHHII", data[:16])[2] == END:
            text = data[24:].rstrip(b"\0").decode()
    return text


def with_descriptors(test, lockd, most):
    """A daemon that may have so many of them."""
    path = f"/tmp/gpushare-test-{most}-{os.getpid()}"
    with open(path, "w", encoding="utf-8") as script:
        script.write(f'#!/bin/sh\nulimit -n {most}\nexec "{lockd}" "$@"\n')
    os.chmod(path, 0o755)
    test.addCleanup(os.unlink, path)
    return path

# SPDX-License-Identifier: Apache-2.0
"""A program on a pseudo terminal, and what its screen shows: as much of a terminal as ncurses uses with TERM=xterm."""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

SEQUENCE = re.compile(r"\x1b\[([?>]?)([\d;]*)([@-~])|\x1b[()][AB0-2]|\x1b[=>78M]|\x1b\][^\x07]*\x07")


class Screen:
    def __init__(self, command, environment, rows=30, columns=80):
        self.rows, self.columns, self.raw = rows, columns, ""
        self.cells = [[" "] * columns for _ in range(rows)]
        self.y = self.x = 0
        self.first, self.last = 0, rows - 1  # the lines that scroll
        self.rest = b""
        self.main, other = pty.openpty()
        fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(command, stdin=other, stdout=other, stderr=other, env=environment)
        os.close(other)

    def close(self):
        self.process.kill()
        self.process.wait()
        os.close(self.main)

    def press(self, keys):
        os.write(self.main, keys.encode())

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def wait(self, condition, patience, what):
        """Until condition(text of the screen)."""
        end = time.monotonic() + patience
        while not condition(self.text()):
            if time.monotonic() > end:
                raise AssertionError(f"waited {patience} s for {what}; the screen:\n{self.text()}")
            if select.select([self.main], [], [], 0.1)[0]:
                try:
                    self.feed(os.read(self.main, 65536))
                except OSError:  # it has ended
                    raise AssertionError(f"ended without {what}:\n{self.text()}") from None
        return self.text()

    def feed(self, data):
        data = self.rest + data
        for cut in range(len(data), max(len(data) - 4, -1), -1):  # half a character waits for the rest
            try:
                text = data[:cut].decode()
                break
            except UnicodeDecodeError:
                continue
        start = text.rfind("\x1b")
        if start >= 0 and not SEQUENCE.match(text, start):  # half a sequence as well
            cut = len(text[:start].encode())
            text = text[:start]
        self.rest = data[cut:]
        self.raw += text
        at = 0
        while at < len(text):
            match = SEQUENCE.match(text, at)
            if match:
                self.obey(match)
                at = match.end()
            else:
                self.put(text[at])
                at += 1

    def put(self, letter):
        if letter == "\r":
            self.x = 0
        elif letter == "\n":
            if self.y == self.last:
                self.scroll(self.first, 1)
            else:
                self.y = min(self.y + 1, self.rows - 1)
        elif letter == "\t":
            self.x = min((self.x // 8 + 1) * 8, self.columns - 1)
        elif letter == "\b":
            self.x = max(self.x - 1, 0)
        elif letter >= " ":
            if self.x < self.columns and self.y < self.rows:
                self.cells[self.y][self.x] = letter
            self.x += 1

    def scroll(self, first, by):
        """Lines from that one to the end of what scrolls go up, or down (by is negative)."""
        lines = self.cells[first:self.last + 1]
        empty = [[" "] * self.columns for _ in range(min(abs(by), len(lines)))]
        self.cells[first:self.last + 1] = lines[by:] + empty if by > 0 else empty + lines[:by]

    def obey(self, match):
        if match[0] == "\x1bM" and self.y == self.first:
            self.scroll(self.first, -1)
        elif match[0] == "\x1bM":
            self.y -= 1
        if match[3] is None or match[1]:
            return
        numbers = [int(n) if n else 0 for n in match[2].split(";")]
        first, kind = numbers[0], match[3]
        count = max(first, 1)
        row = self.cells[min(self.y, self.rows - 1)]
        if kind in "Hf":
            self.y, self.x = count - 1, max((numbers + [1])[1], 1) - 1
        elif kind == "d":
            self.y = count - 1
        elif kind == "G":
            self.x = count - 1
        elif kind in "ABCD":
            self.y += {"A": -count, "B": count}.get(kind, 0)
            self.x += {"C": count, "D": -count}.get(kind, 0)
        elif kind == "K":
            start, end = ((self.x, self.columns), (0, self.x + 1), (0, self.columns))[first]
            row[start:end] = [" "] * (min(end, self.columns) - start)
        elif kind == "J":
            if first == 2:
                self.cells = [[" "] * self.columns for _ in range(self.rows)]
            else:
                row[self.x:] = [" "] * (self.columns - self.x)
                self.cells[self.y + 1:] = [[" "] * self.columns for _ in range(self.rows - self.y - 1)]
        elif kind == "I":
            for _ in range(count):
                self.put("\t")
        elif kind == "Z":
            self.x = max((self.x - 1) // 8 * 8, 0)
        elif kind == "X":
            row[self.x:self.x + count] = [" "] * (min(self.x + count, self.columns) - self.x)
        elif kind == "b":
            for _ in range(count):
                self.put(row[self.x - 1])
        elif kind == "r":
            self.first, self.last = count - 1, (numbers + [self.rows])[1] - 1
            self.y = self.x = 0
        elif kind in "ST":
            self.scroll(self.first, count if kind == "S" else -count)
        elif kind in "LM":
            self.scroll(self.y, count if kind == "M" else -count)
        elif kind == "P":
            row[self.x:] = (row[self.x + count:] + [" "] * self.columns)[:self.columns - self.x]
        elif kind == "@":
            row[self.x:] = ([" "] * count + row[self.x:])[:self.columns - self.x]

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures in docs/look: gpusharectl status and top at several widths of a terminal, and the page of gpusharectl serve at several
widths of a window, from a run on two simulated cards with programs that are not prepared and one that is stopped (tests/lockd/ctl/scene.py).

usage: scripts/look.py [--build build/dev] [--folder docs/look] [--only status|top|page]
       scripts/look.py --contrast     only checks that all colours of the page and of these pictures can be read (4.5 : 1)

Needs tmux, and chromium for the page."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "lockd/ctl/watch/page.html"
TERMINAL_COLUMNS = (80, 100, 120, 140)
WINDOW_WIDTHS = ((390, 844), (768, 1024), (1280, 800), (1920, 1080))
ROWS = 34
LEAST_CONTRAST = 4.5
CELL, LINE, PAD = 7.23, 17, 12
BACK, TEXT = "#161b22", "#e6edf3"
# xterm's colours that status and top use, and the grey of 256 colours (CTL_GREY_NUMBER), as a dark terminal shows them
PALETTE = {31: "#ff7b72", 32: "#3fb950", 33: "#d29922", 36: "#39c5cf", 243: "#8b949e"}


def luminance(colour):
    parts = colour.lstrip("#")
    parts = "".join(2 * digit for digit in parts) if len(parts) == 3 else parts
    values = [int(parts[i:i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    """Of WCAG 2: from 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def page_pairs(text):
    """(what, colour, background) of everything that is read on the page, light and dark."""
    light, dark = (dict(re.findall(r"--(\w+): (#[0-9a-f]+)", block)) for block in re.findall(r":root \{(.*?)\}", text, re.S)[:2])
    fills = re.findall(r"#[0-9a-f]{6}", re.search(r"const FILLS = .*?;\nconst EXTERNAL = .*?;", text, re.S)[0])
    for name, own in (("light", light), ("dark", {**light, **dark})):
        for word in ("text", "soft", "alert"):
            for back in ("back", "card"):
                yield f"{name}: {word} on {back}", own[word], own[back]
        for state in ("runs", "waits", "moving", "idle", "bad", "host"):
            yield f"{name}: the tag of {state}", "#ffffff", own[state]
    for colour in fills:
        yield f"a piece of the bar, {colour}", "#ffffff", colour


def all_pairs():
    yield from page_pairs(PAGE.read_text(encoding="utf-8"))
    yield "terminal: text", TEXT, BACK
    for number, colour in PALETTE.items():
        yield f"terminal: colour {number}", colour, BACK
    for number, back in ((243, "#000000"), (243, "#ffffff")):  # the grey is the only colour of a fixed value
        yield f"terminal: grey {number} on {back}", "#767676", back


def bad_pairs():
    return [f"{what}: {contrast(one, other):.2f} : 1" for what, one, other in all_pairs() if contrast(one, other) < LEAST_CONTRAST]


def spans(line):
    """(text, colour, bold, reverse) of a line with escape sequences."""
    colour, bold, reverse, found = TEXT, False, False, []
    for sequence, text in re.findall(r"\x1b\[([\d;]*)m|([^\x1b]+)", line):
        if text:
            found.append((text, colour, bold, reverse))
            continue
        numbers = [int(n or 0) for n in sequence.split(";")]
        if numbers[:2] == [38, 5]:
            colour, numbers = PALETTE.get(numbers[2], TEXT), []
        for number in numbers:
            if number == 0:
                colour, bold, reverse = TEXT, False, False
            elif number in (1, 7):
                bold, reverse = bold or number == 1, reverse or number == 7
            elif number in PALETTE:
                colour = PALETTE[number]
            elif number == 39:
                colour = TEXT
            elif number in (22, 27):
                bold, reverse = bold and number != 22, reverse and number != 27
    return found


def draw(lines, columns, title):
    width, height = round(columns * CELL + 2 * PAD), len(lines) * LINE + 2 * PAD
    parts = []
    for row, line in enumerate(lines):
        at, y = 0, PAD + row * LINE
        for text, colour, bold, reverse in spans(line):
            x = PAD + at * CELL
            if reverse:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{len(text) * CELL:.1f}" height="{LINE}" fill="{colour}"/>')
            if text.strip():
                parts.append(f'<text x="{x:.1f}" y="{y + 13}" fill="{BACK if reverse else colour}" textLength="{len(text) * CELL:.1f}"'
                             f'{" font-weight=" + chr(34) + "bold" + chr(34) if bold else ""} xml:space="preserve">{escape(text)}</text>')
            at += len(text)
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{escape(title)}">\n<rect width="{width}" height="{height}" rx="6" fill="{BACK}"/>\n'
            f'<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="12">\n{body}\n</g>\n</svg>\n')


class Terminal:
    """A tmux of its own with a command on a terminal of that size."""

    def __init__(self, scene, command, columns, rows=ROWS):
        self.base = ["tmux", "-S", os.path.join(scene.folder, f"tmux-{columns}"), "-f", "/dev/null"]
        self.environment = {**scene.seeing(), "TERM": "xterm-256color"}
        subprocess.run([*self.base, "new-session", "-d", "-x", str(columns), "-y", str(rows), "-s", "look",
                        "exec env TERM=screen-256color " + command], env=self.environment, check=True)

    def lines(self):
        out = subprocess.run([*self.base, "capture-pane", "-e", "-p", "-t", "look"], env=self.environment, capture_output=True, text=True, check=True)
        return out.stdout.rstrip("\n").split("\n")

    def close(self):
        subprocess.run([*self.base, "kill-server"], env=self.environment, check=False)


def capture(scene, command, columns, words):
    """The screen, once all the words are on it."""
    terminal = Terminal(scene, command, columns)
    try:
        for _ in range(1200):
            lines = terminal.lines()
            if all(word in "\n".join(lines) for word in words):
                time.sleep(3)
                return terminal.lines()
            time.sleep(0.1)
        sys.exit(f"look.py: {command} at {columns} columns shows no {words}:\n" + "\n".join(lines))
    finally:
        terminal.close()


def shoot_terminals(scene, folder, only):
    ctl = " ".join(scene.command())
    for name, command, words in (("status", f"sh -c '{ctl} status; sleep 600'", ("unprepared", "matlab")),
                                 ("top", f"{ctl} top --interval 0.5", ("unprepared", "matlab", "q quit"))):
        for columns in TERMINAL_COLUMNS if only in (None, name) else ():
            lines = capture(scene, command, columns, words)
            plain = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in lines]
            cut = [line for line in plain if len(line.rstrip()) == columns and line.rstrip()[-1].isalnum() and "PID" not in line and "%" not in line]
            if any(len(line) > columns for line in plain):
                sys.exit(f"look.py: {name} at {columns} columns has longer lines: {cut}")
            (folder / f"{name}-{columns}.svg").write_text(draw(lines, columns, f"gpusharectl {name} on a terminal of {columns} columns"), encoding="utf-8")
            print(f"wrote {folder}/{name}-{columns}.svg")


def shoot_page(scene, folder):
    sys.path.insert(0, str(ROOT / "tests/lockd/ctl/watch"))
    from watched import Browser, installed
    reason = installed("chromium")
    if reason:
        sys.exit(reason)
    token = os.path.join(scene.folder, "token")
    with open(token, "w", encoding="ascii", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write("a-token-for-pictures\n")
    server = scene.start(scene.command("serve", "--listen", "127.0.0.1:0", "--token-file", token), **{k: scene.seeing()[k] for k in ("LD_LIBRARY_PATH", "GPUSHARE_NVML_WAIT", "LC_ALL")})
    port = re.match(r"serving http://[^/]*:(\d+)/", server.stdout.readline())[1]
    for width, height in WINDOW_WIDTHS:
        os.makedirs(os.path.join(scene.folder, f"browser-{width}"))
        browser = Browser(os.path.join(scene.folder, f"browser-{width}"), width=width, height=height)
        try:
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
            browser.show(f"http://127.0.0.1:{port}/?token=a-token-for-pictures")
            browser.wait("document.querySelectorAll('tr.other').length === 2 && document.querySelectorAll('#devices svg rect').length > 3")
            time.sleep(8)
            wide = browser.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            if wide > 0:
                sys.exit(f"look.py: the page is {wide} px wider than a window of {width} px")
            path = str(folder / f"page-{width}.png")
            browser.screenshot(path)
            print(f"wrote {path}: {os.path.getsize(path) >> 10} KiB")
        finally:
            browser.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=str(ROOT / "build/dev"))
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "docs/look")
    parser.add_argument("--only", choices=("status", "top", "page"))
    parser.add_argument("--contrast", action="store_true")
    options = parser.parse_args()
    bad = bad_pairs()
    if bad:
        sys.exit("look.py: hard to read: " + "; ".join(bad))
    if options.contrast:
        print(f"{len(list(all_pairs()))} pairs of colours, all at least {LEAST_CONTRAST} : 1")
        return
    sys.path.insert(0, str(ROOT / "tests/lockd/ctl"))
    from scene import Scene
    options.folder.mkdir(parents=True, exist_ok=True)
    with Scene(os.path.abspath(options.build)) as scene:
        scene.set_up()
        shoot_terminals(scene, options.folder, options.only)
        if options.only in (None, "page"):
            shoot_page(scene, options.folder)


if __name__ == "__main__":
    main()

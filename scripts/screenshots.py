#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes docs/serve.png, the page of `gpusharectl serve`, and docs/dashboard.png, the panels of the Grafana dashboard, from a run
of programs on the simulated card. Grafana is not part of Debian, so the panels are drawn here, as plots of what
Prometheus answers to their queries.

usage: scripts/screenshots.py [--build build/dev] [--seconds 90] [--folder docs]
       scripts/screenshots.py --readme FILE.png      README.md alone, as cmark-gfm (GitHub's renderer) and a browser show it"""
import argparse
import html
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
sys.path.insert(0, os.path.join(ROOT, "tests/lockd/ctl/watch"))
import dashboard  # noqa: E402
from watched import Browser, Prometheus, Watched, installed  # noqa: E402

MOST_BYTES = 200 << 10
COLORS = ["#3572c6", "#2f8f4e", "#c98a10", "#7a5cc0", "#b03a6a", "#12808a"]
STYLE = """body{margin:0;padding:14px;background:#f6f7f9;color:#1f2933;font:13px/1.4 sans-serif}
h1{font-size:18px;margin:0}h2{font-size:14px;margin:14px 0 4px}p{margin:2px 0 8px;color:#5b6773}
.grid{display:grid;grid-template-columns:repeat(24,1fr);gap:8px}
.panel{background:#fff;border:1px solid #d9dee4;border-radius:6px;padding:8px;overflow:hidden}.panel b{font-weight:600}
.big{font-size:22px;color:#2f8f4e}.legend{font-size:11px;color:#5b6773}.legend i{display:inline-block;width:9px;height:9px;margin:0 4px 0 8px}
svg{display:block;width:100%}td,th{padding:1px 10px 1px 0;text-align:left;font-size:12px}"""


# GitHub's: the width of its text, tables that scroll by themselves
README_WIDTH = 900
README_STYLE = """body{margin:0 auto;padding:24px;max-width:838px;background:#fff;color:#1f2328;font:16px/1.5 -apple-system,"Noto Sans",Helvetica,Arial,sans-serif}
h1,h2{border-bottom:1px solid #d1d9e0;padding-bottom:.3em}img{max-width:100%}a{color:#0969da}
pre{background:#f6f8fa;border-radius:6px;padding:16px;overflow:auto}code{font:85% ui-monospace,"DejaVu Sans Mono",monospace}
p code,li code,td code{background:#eff1f3;border-radius:6px;padding:.2em .4em}
table{border-collapse:collapse;display:block;width:max-content;max-width:100%;overflow:auto}td,th{border:1px solid #d1d9e0;padding:6px 13px}
tr:nth-child(2n){background:#f6f8fa}"""


def unit_text(value, unit):
    if unit in ("bytes", "Bps"):
        for name in ("B", "KiB", "MiB", "GiB"):
            if value < 1024 or name == "GiB":
                return f"{value:.4g} {name}{'/s' if unit == 'Bps' else ''}"
            value /= 1024
    if unit == "percentunit":
        return f"{100 * value:.0f} %"
    if unit == "s":
        return f"{1000 * value:.3g} ms" if value < 1 else f"{value:.3g} s"
    return f"{value:.3g}{'/s' if unit == 'ops' else ''}"


def legend(shown):
    return '<div class="legend">' + "".join(f'<i style="background:{COLORS[i % 6]}"></i>{html.escape(name)}'
                                            for i, (name, _) in enumerate(shown)) + "</div>"


def plot(shown, unit, start, end):
    top = max([value for _, values in shown for _, value in values] + [1e-9]) * 1.1
    parts = []
    for at in (0, 0.5, 1):
        y = 110 - 100 * at
        parts.append(f'<line x1="60" x2="500" y1="{y}" y2="{y}" stroke="#d9dee4"/>'
                     f'<text x="56" y="{y + 4}" font-size="10" text-anchor="end" fill="#5b6773">{unit_text(top * at, unit)}</text>')
    for i, (_, values) in enumerate(shown):
        lines, before = [[]], None
        for at, value in values:  # a line ends where there are no samples
            if before is not None and at - before > 2:
                lines.append([])
            lines[-1].append(f"{60 + 440 * (at - start) / (end - start):.1f},{110 - 100 * value / top:.1f}")
            before = at
        parts += [f'<polyline points="{" ".join(line)}" fill="none" stroke="{COLORS[i % 6]}" stroke-width="1.5"/>' for line in lines]
    return f'<svg viewBox="0 0 500 118">{"".join(parts)}</svg>' + legend(shown)


def bands(shown, start, end):
    parts = []
    for i, (name, values) in enumerate(shown):
        parts.append(f'<text x="0" y="{i * 26 + 16}" font-size="11" fill="#1f2933">{html.escape(name)}</text>')
        parts += [f'<rect x="{120 + 380 * (at - start) / (end - start):.1f}" y="{i * 26 + 3}" width="{380 / (end - start) + 0.3:.1f}" height="18" '
                  f'fill="#2f8f4e"/>' for at, value in values if value == 1]
    return f'<svg viewBox="0 0 500 118">{"".join(parts)}</svg>'


def table(shown, unit, end):
    rows = "".join(f"<tr><td>{html.escape(name)}</td><td>{unit_text(values[-1][1], unit)}</td></tr>" for name, values in shown
                   if end - values[-1][0] < 2)
    return f"<table>{rows}</table>"


def draw(panel, shown, start, end):
    unit = panel["fieldConfig"]["defaults"]["unit"]
    if not shown:
        body = "<p>no data at this moment</p>"
    elif panel["type"] in ("stat", "gauge"):
        named = panel["options"].get("textMode") == "name"
        body = f'<div class="big">{html.escape(shown[0][0]) if named else unit_text(shown[0][1][-1][1], unit)}</div>'
    elif panel["type"] == "state-timeline":
        body = bands(shown, start, end)
    elif panel["type"] in ("table", "bargauge"):
        body = table(shown, unit, end)
    else:
        body = plot(shown, unit, start, end)
    return f'<div class="panel" style="grid-column:span {panel["gridPos"]["w"]}"><b>{html.escape(panel["title"])}</b>{body}</div>'


def dashboard_page(prometheus, start, end):
    board, parts = dashboard.load(), []
    for panel in board["panels"]:
        if panel["type"] == "row":
            parts.append(f'<div style="grid-column:span 24"><h2>{html.escape(panel["title"])}</h2></div>')
            continue
        shown = [each for target in panel["targets"] for each in dashboard.series(prometheus, target, start, end)]
        parts.append(draw(panel, shown, start, end))
    return (f"<!DOCTYPE html><meta charset=utf-8><style>{STYLE}</style><h1>{html.escape(board['title'])}</h1>"
            "<p>The panels of packaging/grafana/gpushare.json for a run on the simulated card. Drawn by scripts/screenshots.py from what "
            f"Prometheus answers to their queries; Grafana draws them in its own way.</p><div class=grid>{''.join(parts)}</div>")


def run_programs(card, seconds):
    """Two train, one is used now and then and comes later."""
    card.share("train", 0.6)
    card.share("finetune", 0.5)
    time.sleep(seconds / 4)
    card.share("notebook", 0.3, seconds=seconds / 2, cpu_ms=900)
    time.sleep(3 * seconds / 4)


def keep(browser, path, scale=1):
    browser.screenshot(path, scale)
    size = os.path.getsize(path)
    print(f"{path}: {size >> 10} KiB")
    if size > MOST_BYTES:
        sys.exit(f"{path}: {size} bytes, more than {MOST_BYTES}")


def shoot_readme(path):
    """The picture; an exit status of 1 if an image is missing, or if a table or a block of code is wider than GitHub's page."""
    done = subprocess.run(["cmark-gfm", "--unsafe", "-e", "table", "-e", "autolink", os.path.join(ROOT, "README.md")], check=True,
                          capture_output=True, text=True)
    with tempfile.TemporaryDirectory(prefix="gs-readme-") as folder:
        page = os.path.join(folder, "README.html")
        with open(page, "w", encoding="utf-8") as file:
            file.write(f"<!DOCTYPE html><meta charset=utf-8><base href='{pathlib.Path(ROOT).resolve().as_uri()}/'>"
                       f"<style>{README_STYLE}</style>{done.stdout}")
        browser = Browser(folder, width=README_WIDTH)
        try:
            browser.show("file://" + page)
            browser.wait("document.readyState === 'complete' && document.querySelectorAll('h2').length > 2")
            browser.screenshot(path)
            broken = browser.evaluate("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
            wide = browser.evaluate("[...document.querySelectorAll('html, table, pre')].filter(e => e.scrollWidth > e.clientWidth)"
                                    ".map(e => e.tagName + ': ' + e.innerText.slice(0, 60))")
        finally:
            browser.close()
    print(f"{path}: {os.path.getsize(path) >> 10} KiB")
    if broken or wide:
        sys.exit(f"README.md: images that are not shown: {broken}; wider than the page: {wide}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/dev"))
    parser.add_argument("--seconds", type=int, default=90)
    parser.add_argument("--folder", default=os.path.join(ROOT, "docs"))
    parser.add_argument("--readme", metavar="FILE.png")
    options = parser.parse_args()
    if options.readme:
        reason = installed("chromium", "cmark-gfm")
        if reason:
            sys.exit(reason)
        shoot_readme(options.readme)
        return
    reason = installed("chromium", "prometheus")
    if reason:
        sys.exit(reason)
    with Watched(os.path.abspath(options.build), quantum_ms=4000, nvml=False) as card:
        prometheus, start = Prometheus(card), time.time()
        run_programs(card, options.seconds)
        browser = Browser(card.folder)
        try:
            browser.show(card.page)
            browser.wait("document.querySelectorAll('#devices svg rect').length > 4")
            keep(browser, os.path.join(options.folder, "serve.png"))
            page = os.path.join(card.folder, "dashboard.html")
            with open(page, "w", encoding="utf-8") as file:
                file.write(dashboard_page(prometheus, start, time.time()))
            browser.show("file://" + page)
            browser.wait("document.querySelectorAll('.panel').length > 10")
            keep(browser, os.path.join(options.folder, "dashboard.png"), 0.85)
        finally:
            browser.close()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks what the documentation points at: scripts/check_docs.py [--blocks PAGE].

In every committed Markdown page: relative links lead to files, and their #anchors to headings. In the tables of tours
(rows "`FILE` | `FUNCTION`" of docs/architecture.md) the file has that name in it. In docs/glossary.md every `FILE` is
there. Every `FUNCTION()` with an underscore and every `FOLDER/FILE.c` (.h, .py, .sh, .def) of a page is in the tree
(not in NEWS.md, which also names what is gone). Each promise of SECURITY.md, docs/containers.md and docs/kubernetes.md names a test that ctest runs, or says that there is none. The pictures of README are those of the kept run.
The table of constants of docs/scheduling.md has every constant of lockd/sched/, with its value. Exit status 1 and one line for each fault.

--blocks PAGE prints the shell blocks of a page instead, for check_docs.sh: for each its folder ("repository" or "program",
or "no: REASON"), the line it begins in, and its commands, separated by NUL.
"""
import argparse
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TOUR = re.compile(r"^\|[^|]*\| `([\w/.]+)` \| (`.*`) \|")
NAME = re.compile(r"`([A-Za-z_][\w*]*)(?:\(\))?`")
CHECK = re.compile(r"^<!-- check: (.*) -->$")


def split_blocks(text):
    """(first line, language, mark, body) of each fenced block, and the text without them."""
    blocks, rest, body, mark, start, language = [], [], None, "", 0, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            if body is None:
                body, start, language = [], number + 1, line[3:].strip()
            else:
                blocks.append((start, language, mark, "\n".join(body) + "\n"))
                body, mark = None, ""
        elif body is not None:
            body.append(line)
        else:
            match = CHECK.match(line)
            mark = match[1] if match else ""
            rest.append(line)
    return blocks, "\n".join(rest)


def anchor_of(heading):
    text = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def find_anchors(path):
    _, text = split_blocks(path.read_text())
    return {anchor_of(line.lstrip("#")) for line in text.splitlines() if line.startswith("#")}


def check_links(page):
    _, text = split_blocks(page.read_text())
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        target, _, anchor = link.partition("#")
        file = (page.parent / target).resolve() if target else page
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: no such file: {link}"
        elif anchor and file.suffix == ".md" and anchor not in find_anchors(file):
            yield f"{page.relative_to(ROOT)}: no such heading: {link}"


def check_tours(page):
    rows = 0
    for line in page.read_text().splitlines():
        match = TOUR.match(line)
        if not match:
            continue
        rows += 1
        file = ROOT / match[1]
        if not file.exists():
            yield f"{page.relative_to(ROOT)}: no such file: {match[1]}"
            continue
        text = file.read_text()
        for name in NAME.findall(match[2]):
            if not re.search(rf"\b{re.escape(name)}\b", text):
                yield f"{page.relative_to(ROOT)}: {match[1]} has no {name}"
    if rows == 0:
        yield f"{page.relative_to(ROOT)}: no row of a tour was found"


def check_glossary(page):
    for name in re.findall(r"`([\w.]+/[\w/.]+)`", page.read_text()):
        if not (ROOT / name).exists():
            yield f"{page.relative_to(ROOT)}: no such file: {name}"


def check_names(pages, listed):
    """Names of functions and of source files in the pages that the tree does not have."""
    sources = [name for name in listed if not name.endswith((".md", ".scd", ".svg", ".json", ".png"))]
    words = set()
    for name in sources:
        words.update(re.findall(r"\b[A-Za-z_]\w*_\w*", (ROOT / name).read_text(errors="replace")))
    for page in pages:
        text = page.read_text()
        for name in sorted(set(re.findall(r"`([A-Za-z]\w*_\w+)\(\)`", text)) - words):
            yield f"{page.relative_to(ROOT)}: no such function: {name}()"
        for name in sorted(set(re.findall(r"`((?:[\w-]+/)+[\w-]+\.(?:c|h|py|sh|def))`", text))):
            if not any(each == name or each.endswith("/" + name) for each in listed):
                yield f"{page.relative_to(ROOT)}: no such file: {name}"


# the sections that promise something, by page
PROMISES = {
    "SECURITY.md": r"What [^\n]* promises",
    "docs/containers.md": r"Start a container|What a container may do",
    "docs/kubernetes.md": r"What a pod [^\n]*|Memory of the pod|Health|Metrics|What the DaemonSet may do|Beside NVIDIA's plugin",
}


def check_promises(name, titles, listed):
    """Each item of these sections, or the section if it has none, names a test that ctest runs, or says "No test"."""
    lists = "".join((ROOT / each).read_text() for each in listed if each.startswith("tests/") and each.endswith("CMakeLists.txt"))
    sections = re.findall(rf"^## ({titles})\n(.*?)(?=^## |\Z)", (ROOT / name).read_text(), re.M | re.S)
    if len(sections) < 2:
        yield f"{name}: its promises were not found"
    for title, text in sections:
        for promise in re.findall(r"^- (?:.+\n)+?(?=- |\n|\Z)", text, re.M) or [text]:
            tests = re.findall(r"`tests/(?:[\w-]+/)*(test_\w+)\.(?:py|c|sh)`", promise)
            if not tests and "No test" not in promise:
                yield f"{name}: {title}: no test: {promise[:80]!r}"
            yield from (f"{name}: ctest does not run {test}" for test in tests if not is_run(test, lists))


def is_run(test, lists):
    """By its name, or by a list of names without the test_ of C files."""
    return re.search(rf"\b{test}\b|^foreach\(name [^)]*\b{test.removeprefix('test_')}\b", lists, re.M)


CONSTANT = re.compile(r"^#define ([A-Z]\w+)[ \\\n]+([^\n]+?) *(?:/\*.*)?$", re.M)
# what makes numbers of one kind out of "0.2 s", "1/8", "4 switches": nanoseconds, bytes, the divisor
UNITS = {"s": 10**9, "ms": 10**6, "MiB": 2**20, "GB/s": 10**9, "ppm": 1, "%": 1}
NO_CONSTANTS = {"MIB", "GIB", "NS_PER_MS", "PPM", "LOCKD_NEVER", "LOCKD_AUTO", "LEVEL_START", "ROUND_START"}  # units, marks, an origin


def constants_of(folder):
    """The numbers that its files define, by name; times in nanoseconds."""
    texts = dict(match.groups() for path in sorted((ROOT / folder).glob("*.[ch]")) for match in CONSTANT.finditer(path.read_text()))
    values = {}
    for name, text in texts.items():
        while re.search(r"[A-Z]\w+", text) and all(each in texts for each in re.findall(r"[A-Z]\w+", text)):
            text = re.sub(r"[A-Z]\w+", lambda match: f"({texts[match[0]]})", text)
        text = re.sub(r"(?i)(\d)u?l?l?\b", r"\1", text)
        if name not in NO_CONSTANTS and re.fullmatch(r"[\d\s()*+<-]+", text):
            values[name] = eval(text)  # pylint: disable=eval-used
    return values


def check_constants(page, folder):
    """Each row "| `NAME`, ... | value, ... | reason |" of the page, and each constant of the folder, have the other with the same value."""
    values, told = constants_of(folder), {}
    for names, row, reason in re.findall(r"^\| ((?:`[A-Z]\w+`(?:, )?)+) \| ([^|]+) \| ([^|]+) \|$", page.read_text(), re.M):
        names, row = re.findall(r"\w+", names), row.split(",")
        for name, text in zip(names, row if len(row) == len(names) else row * len(names)):
            number, unit = re.fullmatch(r"(?:1/)?([\d.]+) ?(\S*)", text.strip()).groups()
            told[name] = round(float(number) * (UNITS.get(unit, 1)))
        if not reason.strip():
            yield f"{page.relative_to(ROOT)}: no reason for {', '.join(names)}"
    for name in sorted(values.keys() | told.keys()):
        if values.get(name) != told.get(name):
            yield f"{page.relative_to(ROOT)}: {name} is {told.get(name, 'not there')}, in {folder} {values.get(name, 'not there')}"


def check_pictures():
    done = subprocess.run([ROOT / "scripts/terminal_svg.py", "--check"], text=True, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        yield done.stderr.strip()


def print_blocks(page):
    for start, language, mark, body in split_blocks(page.read_text())[0]:
        if language != "sh":
            continue
        if mark.startswith("no, "):
            where = "no: " + mark[4:]
        elif mark in ("", "program"):
            where = mark or "repository"
        else:
            sys.exit(f"check_docs.py: {page}:{start}: what is 'check: {mark}'?")
        sys.stdout.write(f"{where}\0{start}\0{body}\0")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=pathlib.Path, metavar="PAGE", help="print the shell blocks of a page")
    options = parser.parse_args()
    if options.blocks:
        print_blocks(options.blocks)
        return
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True).stdout
    listed = [name for name in listed.split("\0") if (ROOT / name).is_file()]
    pages = [ROOT / name for name in listed if name.endswith(".md")]
    faults = [fault for page in pages for fault in check_links(page)]
    faults += check_tours(ROOT / "docs/architecture.md")
    faults += check_glossary(ROOT / "docs/glossary.md")
    faults += [fault for page, titles in PROMISES.items() for fault in check_promises(page, titles, listed)]
    faults += check_names([page for page in pages if page.name != "NEWS.md"], listed)
    faults += check_constants(ROOT / "docs/scheduling.md", "lockd/sched")
    faults += check_pictures()
    for fault in faults:
        print(fault)
    print(f"{len(pages)} pages, {len(faults)} faults")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()

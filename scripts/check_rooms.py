#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the code keeps to its rooms (scripts/rooms.txt), and counts the circles between files.

    scripts/check_rooms.py                     #include lines, files for each room, names that stand twice, headers
                                               that declare another file's functions, static functions with one word
    scripts/check_rooms.py --objects build/dev the circles of calls between files as well, from a finished build

A *circle* is a set of files of which each can reach each other by calls (a strongly connected component of the graph
"file A uses a symbol that file B defines", as nm shows it). Exit status: 0 all as it should be, 1 not, 2 bad usage.
"""
import argparse
import collections
import os
import re
import subprocess
import sys

LADDER = "scripts/rooms.txt"
MOST_FILES = 25  # .c files for each room: what a newcomer can take in at once
LARGEST_CIRCLE = 3
SOURCES = (".c", ".h", ".S", ".cu", ".def")
# Headers that declare what several files of their room define: all that other rooms may use of it.
INTERFACES = {"lockd/sched/scheduler.h"}
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
DEFINITION = re.compile(r"^(?!static\b|typedef\b|extern\b)\w[\w \*\n]*?[ \*\n](\w+)\([^;{}]*\)\s*\{", re.MULTILINE)
STATIC = re.compile(r"^static\s[\w \*\n]*?[ \*\n]([a-z0-9]+)\([^;{}]*\)\s*\{", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)


def read_ladder(path):
    """The rooms in their order: {room: set of rooms that it may use}; and what is wrong with the list itself."""
    rooms, faults = {}, []
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.split("#")[0].strip()
            if not line:
                continue
            room, _, uses = line.partition(":")
            for used in uses.split():
                if used not in rooms:
                    faults.append(f"{path}:{number}: {room} uses {used}, which does not stand above it")
            if room in rooms:
                faults.append(f"{path}:{number}: {room} stands here a second time")
            rooms[room] = set(uses.split())
    return rooms, faults


def read_sources(rooms):
    """The source files that git knows in the top folders of the rooms."""
    tops = sorted({room.split("/")[0] for room in rooms})
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *tops],
                            stdout=subprocess.PIPE, text=True, check=True)
    return [name for name in listed.stdout.splitlines() if name.endswith(SOURCES) and os.path.exists(name)]


def check_places(rooms, sources):
    """Files outside every room, rooms with too many or no files, and base names that stand twice in one folder tree."""
    count, bases = collections.Counter(), collections.defaultdict(set)
    for name in sources:
        room, file = os.path.split(name)
        if room not in rooms:
            yield f"{name}: {room} is no room of {LADDER}"
        count[room] += name.endswith(".c")
        if name.endswith((".c", ".h")):
            bases[(room.split("/")[0], os.path.splitext(file)[0])].add(room)
    for room in rooms:
        if not any(os.path.dirname(name) == room for name in sources):
            yield f"{LADDER}: {room} has no files"
        if count[room] > MOST_FILES:
            yield f"{room}: {count[room]} .c files; at most {MOST_FILES}: divide it"
    for (top, base), where in sorted(bases.items()):
        if len(where) > 1:
            yield f"{top}: the name {base} stands in {', '.join(sorted(where))}: give each a name of its own"


def check_includes(rooms, sources):
    """#include lines that lead to a room which the ladder does not allow."""
    for name in sources:
        room = os.path.dirname(name)
        with open(name, encoding="utf-8") as file:
            text = file.read()
        for included in INCLUDE.findall(text):
            target = os.path.dirname(included)
            if target in rooms and target != room and target not in rooms.get(room, ()):
                yield f"{name} includes {included}: {LADDER} does not let {room} use {target}"


def outside_of_bodies(text):
    """A header's text without comments, directives and everything in braces: its declarations."""
    text = re.sub(r"^\s*#(.*\\\n)*.*$", "", COMMENT.sub(" ", text), flags=re.MULTILINE)
    kept, depth = [], 0
    for character in text:
        depth += (character == "{") - (character == "}")
        kept.append(character if depth == 0 else "")
    return "".join(kept)


def check_names(sources):
    """Headers that declare functions of another .c than their own; static functions with one-word names."""
    texts = {name: open(name, encoding="utf-8").read() for name in sources if name.endswith((".c", ".h"))}
    defined = collections.defaultdict(set)
    for name, text in texts.items():
        if name.endswith(".c"):
            text = COMMENT.sub(" ", text)
            for function in DEFINITION.findall(text):
                defined[(name.split("/")[0], function)].add(name)
            for function in STATIC.findall(text):
                if function != "main":
                    yield f"{name}: {function}() says one word; a static function says verb and object"
    for name, text in texts.items():
        own = name[:-2] + ".c"
        if name.endswith(".h") and name not in INTERFACES:
            for function in re.findall(r"\b(\w+)\s*\(", outside_of_bodies(text)):
                where = defined.get((name.split("/")[0], function))
                if where and own not in where:
                    yield f"{name} declares {function}(), which {', '.join(sorted(where))} defines"


def read_calls(build, sources):
    """{file: {file whose symbols it uses: those symbols}} for each library or program of the build that has our files."""
    known = set(sources)
    graphs = {}
    for folder, _, names in os.walk(build):
        target = re.search(r"/CMakeFiles/([^/]+)\.dir", folder)
        for name in names:
            source = os.path.relpath(os.path.join(re.sub(r"/CMakeFiles/[^/]+\.dir", "", folder), name[:-2]), build)
            if target and name.endswith(".o") and source in known:
                graphs.setdefault(source, os.path.join(folder, name))
    defined, used = {}, {}
    for source, path in sorted(graphs.items()):
        listing = subprocess.run(["nm", "-P", path], stdout=subprocess.PIPE, text=True, check=True).stdout
        symbols = [line.split()[:2] for line in listing.splitlines()]
        used[source] = {name for name, kind in symbols if kind == "U"}
        for name, kind in symbols:
            if kind in "TDBRVWC":
                defined.setdefault((source.split("/")[0], name), source)
    calls = {source: collections.defaultdict(set) for source in graphs}
    for source, names in used.items():
        for name in names:
            other = defined.get((source.split("/")[0], name)) or defined.get(("common", name))
            if other and other != source:
                calls[source][other].add(name)
    return calls


def find_circles(graph):
    """The strongly connected components of more than one node (Tarjan, 1972), without recursion."""
    number, low, stack, on_stack, circles = {}, {}, [], set(), []
    for root in graph:
        work = [(root, iter(graph[root]))] if root not in number else []
        if work:
            number[root] = low[root] = len(number)
            stack.append(root)
            on_stack.add(root)
        while work:
            node, others = work[-1]
            for other in others:
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(graph.get(other, ()))))
                    break
                if other in on_stack:
                    low[node] = min(low[node], number[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == number[node]:
                    members = []
                    while not members or members[-1] != node:
                        members.append(stack.pop())
                        on_stack.discard(members[-1])
                    if len(members) > 1:
                        circles.append(sorted(members))
    return sorted(circles, key=len, reverse=True)


def check_circles(calls, verbose):
    """Circles of rooms, and circles of more than LARGEST_CIRCLE files inside a room. Prints all circles."""
    between = collections.defaultdict(dict)
    for source, others in calls.items():
        for other in others:
            if os.path.dirname(source) != os.path.dirname(other):
                between[os.path.dirname(source)].setdefault(os.path.dirname(other), f"{source} -> {other}")
    for room in [os.path.dirname(source) for source in calls]:
        between.setdefault(room, {})
    for circle in find_circles(between):
        yield "rooms that call each other in a circle: " + ", ".join(circle)
    found = find_circles(calls)
    for circle in found:
        print(f"circle of {len(circle)} files: {' '.join(circle)}")
        if verbose:
            for source in circle:
                for other in circle:
                    if calls[source].get(other):
                        print(f"    {source} -> {other}: {' '.join(sorted(calls[source][other])[:8])}")
        if len(circle) > LARGEST_CIRCLE:
            yield f"{len(circle)} files call each other in a circle; at most {LARGEST_CIRCLE}: {' '.join(circle)}"
    print(f"{len(found)} circles of calls among {len(calls)} files")


def main():
    parser = argparse.ArgumentParser(description="checks that the code keeps to its rooms (scripts/rooms.txt)")
    parser.add_argument("--objects", metavar="BUILD", help="a finished build, whose calls are checked for circles")
    parser.add_argument("--verbose", action="store_true", help="with --objects: show the calls of each circle")
    options = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    rooms, faults = read_ladder(LADDER)
    sources = read_sources(rooms)
    faults += check_places(rooms, sources)
    faults += check_includes(rooms, sources)
    faults += check_names(sources)
    if options.objects:
        if not os.path.isdir(options.objects):
            parser.error(f"{options.objects}: no such folder; build first")
        faults += check_circles(read_calls(options.objects, sources), options.verbose)
    for fault in faults:
        print(f"error: {fault}")
    print(f"{len(rooms)} rooms, {len(sources)} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints every text that the product can say, for a review as one list: scripts/list_messages.py [FOLDER...].

A line each: FILE:LINE FUNCTION "text". Texts are string literals of three words or more outside of comments and directives;
neighbouring literals are joined, as in C. Each message names the object, says what happened, and what to do (HACKING.md, Rules).
"""
import re
import subprocess
import sys

TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|/\*.*?\*/|//[^\n]*|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*', re.DOTALL | re.MULTILINE)
WORDS = re.compile(r"[a-z]{2,}[,:;]? +[a-z%]\S* +\S", re.IGNORECASE)
FUNCTION = re.compile(r"(\w+)\s*\([^()]*$")


def texts(source):
    """(offset, text) of each string of a C file, with its neighbours joined."""
    end, start, words = -1, 0, ""
    for token in TOKEN.finditer(source):
        if not token.group(0).startswith('"'):
            continue
        if end >= 0 and re.fullmatch(r"(\s|PRI\w+)*", source[end:token.start()]):
            words += token.group(0)[1:-1]
        else:
            if words:
                yield start, words
            start, words = token.start(), token.group(0)[1:-1]
        end = token.end()
    if words:
        yield start, words


def main():
    folders = sys.argv[1:] or ["common", "wrap", "lockd", "runtime", "rewriter", "cluster"]
    listed = subprocess.run(["git", "ls-files", *folders], capture_output=True, text=True, check=True).stdout
    for name in listed.splitlines():
        if not name.endswith((".c", ".h", ".def")):
            continue
        with open(name, encoding="utf-8") as file:
            source = file.read()
        for offset, words in texts(source):
            if WORDS.search(words):
                function = FUNCTION.search(source[max(0, offset - 300):offset])
                print(f'{name}:{source.count(chr(10), 0, offset) + 1} {function.group(1) if function else "-"} "{words}"')


if __name__ == "__main__":
    main()

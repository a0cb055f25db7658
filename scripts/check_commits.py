#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks commit messages: scripts/check_commits.py [RANGE | --message FILE].

A subject is `area: Verb object` in at most 72 characters. A commit that changes more than ten lines of code has a body that says
why. RANGE defaults to the commits since BASE; earlier ones are exempt. --message checks one message that is about to be
committed: `ln -s ../../scripts/check_commits.py .git/hooks/commit-msg` works as well.
"""
import re
import subprocess
import sys

BASE = "d6ce9ae300ead88134a6ab1e3ebad9e4820a50d6"  # the last commit before this check
SUBJECT_MOST = 72  # characters: what git log --oneline shows in 80 columns
LINES_MOST = 10  # changed lines of code that need no reason in writing
CODE = re.compile(r"\.(c|h|cc|cu|cuh|def|py|sh|S)$|(^|/)CMakeLists\.txt$|^\.ci/")
SUBJECT = re.compile(r"[a-z0-9_.][\w./+-]*(, [\w./+-]+)*: [A-Z][a-z]+ ")
EMPTY = re.compile(r"\b(wip|WIP)\b|^(fixup|squash)!|Last read|: Counts$")
# a sentence begins with these, not an order
NO_VERBS = set("A All An And Any As At Both But By Each For From How If In It Its More No Not Of On One Or Some That The There "
               "These They This Those To Under What When Where Which While Who With".split())


def git(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def faults_of(message, lines):
    """What is wrong with a message. lines: of code that the commit changes."""
    subject, _, body = message.strip().partition("\n")
    if EMPTY.search(subject):
        yield "the subject says nothing"
    if len(subject) > SUBJECT_MOST:
        yield f"the subject has {len(subject)} characters instead of at most {SUBJECT_MOST}"
    if not SUBJECT.match(subject + " ") or subject.split(": ", 1)[1].split()[0] in NO_VERBS:
        yield "the subject is not `area: Verb object`"
    if lines > LINES_MOST and not body.strip():
        yield f"{lines} lines of code change, and no body says why"


def changed_lines(text):
    """Lines of code in the output of --numstat."""
    rows = [row.split("\t") for row in text.splitlines() if row.count("\t") == 2]
    return sum(int(added) + int(removed) for added, removed, path in rows if added != "-" and CODE.search(path))


def default_range():
    if git("merge-base", "--is-ancestor", BASE, "HEAD") is not None:
        return f"{BASE}..HEAD"
    if git("rev-parse", "--verify", "-q", "origin/main"):
        return "origin/main..HEAD"
    return "-1"  # a clone without history


def check_range(commits):
    listed = git("rev-list", "--no-merges", commits) if commits != "-1" else git("rev-list", "-1", "HEAD")
    if listed is None:
        sys.exit(f"check_commits.py: git knows no commits {commits}")
    for commit in reversed(listed.split()):
        message, lines = git("log", "-1", "--format=%B", commit), changed_lines(git("show", "--numstat", "--format=", commit))
        for fault in faults_of(message, lines):
            yield f"{commit[:8]} {message.splitlines()[0]}\n    {fault}"


def check_message(path):
    with open(path, encoding="utf-8") as file:
        message = "".join(line for line in file if not line.startswith("#"))
    for fault in faults_of(message, changed_lines(git("diff", "--cached", "--numstat") or "")):
        yield f"{message.splitlines()[0] if message else ''}\n    {fault}"


def main():
    words = sys.argv[1:]
    if words[:1] == ["--message"] and len(words) == 2:
        found = list(check_message(words[1]))
    elif len(words) == 1 and sys.argv[0].endswith("commit-msg"):
        found = list(check_message(words[0]))
    elif len(words) <= 1 and not words[:1] == ["--help"]:
        found = list(check_range(words[0] if words else default_range()))
    else:
        sys.exit(__doc__)
    print("\n".join(found + [f"{len(found)} faults"]))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()

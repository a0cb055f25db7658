#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts what makes comments hard to read, for each room: scripts/check_english.py [--list ROOM].

Reference is what has to be read twice: "one" and "ones" where no noun follows (at most 0.3 in 100 words of comments), and sentences
that open with a pronoun, or with What, One or Those (at most 8 %). --list prints these sentences of a room. Exit status 1: a room
is above a bound.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ONES_MOST = 0.3  # in 100 words; 0.13 in dbus-broker, 0.20 in tmux
OPENERS_MOST = 8.0  # percent; 8 in dbus-broker, 2 in tmux
FEW_SENTENCES = 25  # a room with fewer may have two of them, whatever share that is
OPENERS = set("He I It One Ones She Such That They Those We What Which Who You".split())
COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*(.*?)\*/|//([^\n]*)', re.S)
# in place of a noun: no noun follows
ONE = re.compile(r"\bones\b|\bone\b(?=\s*(?:[.,;:)?!\"*]|$)|\s+(?:and|are|as|at|before|but|by|can|does|else|for|from|had|has|in|is|"
                 r"may|meanwhile|nor|not|on|or|replaces|that|to|was|were|when|where|which|while|who|whose|will|with|would)\b)", re.I)
# a number or an amount, which is no reference
NUMBER = re.compile(r"\b(?:one by one|one (?:after|at) (?:the other|a time)|one or (?:more|several|two)|one to one|one in (?:\d+|so many)|"
                    r"(?:at least|exactly|only|more than) one|one-\w+)\b", re.I)


def comments_of(path):
    """The texts of its comments; lines that follow each other are one text."""
    for found in COMMENT.finditer(path.read_text(encoding="utf-8")):
        text = found.group(1) if found.group(1) is not None else found.group(2)
        if text:
            text = re.sub(r"\n\s*\*?[ \t]*\n", "\n.\n", text)  # an empty line ends a sentence
            yield " ".join(re.sub(r"^\s*\*+", "", line).strip() for line in text.splitlines()).strip()


def sentences_of(text):
    return [part.strip() for part in re.split(r"(?<=[.!?:;])\s+(?=[A-Z])", text) if re.search(r"[A-Za-z]{2}", part)]


def rooms():
    for line in (ROOT / "scripts/rooms.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            yield line.split(":")[0].strip().rstrip("/")


def look(room):
    """(words, ones, sentences, those that open badly), the last two as lists."""
    words = ones = 0
    sentences, bad = [], []
    for path in sorted((ROOT / room).glob("*.[ch]")):
        for text in comments_of(path):
            if text.startswith("SPDX"):
                text = re.sub(r"^SPDX\S* \S+ ?", "", text)
            words += len(re.findall(r"[A-Za-z][\w'-]*", text))
            for sentence in sentences_of(text):
                found = len(ONE.findall(NUMBER.sub("", sentence)))
                ones += found
                sentences.append(sentence)
                if sentence.split()[0] in OPENERS or found:
                    bad.append((path.relative_to(ROOT), sentence.split()[0] in OPENERS, sentence))
    return words, ones, sentences, bad


def main():
    if sys.argv[1:2] == ["--list"] and len(sys.argv) == 3:
        for path, _, sentence in look(sys.argv[2].rstrip("/"))[3]:
            print(f"{path}: {sentence}")
        return 0
    above = 0
    print(f"{'room':24} {'words':>6} {'one(s) in 100':>13} {'sentences':>9} {'open badly':>10}")
    for room in rooms():
        words, ones, sentences, bad = look(room)
        openers = sum(opens for _, opens, _ in bad)
        share, percent = 100 * ones / max(words, 1), 100 * openers / max(len(sentences), 1)
        over = share > ONES_MOST and ones > 2 or percent > OPENERS_MOST and not (len(sentences) < FEW_SENTENCES and openers <= 2)
        above += over
        print(f"{room:24} {words:6} {share:13.2f} {len(sentences):9} {percent:8.1f} %{'  above' if over else ''}")
    print(f"{above} rooms above {ONES_MOST} in 100 words or {OPENERS_MOST:.0f} %")
    return above != 0


if __name__ == "__main__":
    sys.exit(main())

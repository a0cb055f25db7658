# SPDX-License-Identifier: Apache-2.0
"""A daemon that cannot start, for each reason that does not get better by itself: a program says so in one line of its own, tries once,
and goes on. test_unstartable.py --build DIR"""
import concurrent.futures
import contextlib
import os
import select
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from card import PATIENCE, BuildTest, Card, Told, check, main, wait_for  # noqa: E402

LOADER = "x: error while loading shared libraries: libinih.so.1: cannot open shared object file: No such file or directory"


class Scene:
    def __init__(self, card):
        self.card, self.folder = card, card.folder
        self.starts = os.path.join(card.folder, "starts")
        self.environment = {}

    def script(self, body):
        """The daemon that the program starts: it counts its starts, and then does as told."""
        return self.program(f'#!/bin/sh\necho "$$" >> "{self.starts}"\n{body}\n')

    def program(self, text):
        path = os.path.join(self.folder, "lockd.sh")
        with open(path, "w", encoding="ascii") as file:
            file.write(text)
        os.chmod(path, 0o755)
        self.environment["GPUSHARE_LOCKD"] = path

    def started(self):
        try:
            with open(self.starts, encoding="ascii") as file:
                return [int(line) for line in file]
        except FileNotFoundError:
            return []


def real(scene, *options):
    scene.script(f'exec "{scene.card.lockd}" "$@" {" ".join(options)}')


def folder_in_the_sockets_place(scene):
    real(scene)
    os.mkdir(scene.card.socket)
    return 0, "is a folder, not the socket"


def folder_that_cannot_be_made(scene):
    real(scene)
    scene.environment["GPUSHARE_SOCKET"] = f"{scene.folder}/missing/inner/lockd.sock"
    return 1, "cannot create this folder"


def file_in_the_folders_place(scene):
    real(scene)
    with open(f"{scene.folder}/file", "w", encoding="ascii"):
        pass
    scene.environment["GPUSHARE_SOCKET"] = f"{scene.folder}/file/lockd.sock"
    return 0, "Not a directory"


def path_that_is_not_full(scene):
    real(scene)
    scene.environment["GPUSHARE_SOCKET"] = "lockd.sock"
    return 0, "GPUSHARE_SOCKET is not the full path"


def program_that_is_none(scene):
    scene.program("this is no program\n")
    return 0, "Exec format error"


def program_that_is_a_folder(scene):
    scene.environment["GPUSHARE_LOCKD"] = scene.folder
    return 0, "GPUSHARE_LOCKD"


def program_that_is_not_there(scene):
    scene.environment["GPUSHARE_LOCKD"] = "/nonexistent"
    return 0, "GPUSHARE_LOCKD"


def library_that_is_missing(scene):
    scene.script(f'echo "{LOADER}" >&2\nexit 127')
    return 1, "libinih.so.1"


def failure_without_a_word(scene):
    scene.script("exit 1")
    return 1, "it ended with status 1"


def configuration_that_is_wrong(scene):
    real(scene, "--config", "/nonexistent")
    return 1, "/nonexistent"


def words_without_end(scene):
    scene.script('i=0\nwhile [ $i -lt 3000 ]; do echo "$i: many words that nobody should have to read" >&2; i=$((i + 1)); done\n'
                 'printf "the last\\033[31m word" >&2\nexit 1')
    return 1, "the last?[31m word"


def crash(scene):
    scene.script("kill -SEGV $$")
    return 1, "signal 11"


def daemon_that_stays_in_the_foreground(scene):
    """It is ended, and the program does not wait for it for ever."""
    scene.script("exec sleep 1000")
    return 1, "did not start in the background"


def attempt(scene, title, starts, word, quiet):
    """The program goes on until the daemon has ended: after 15 s it would no longer wait for it, and could end first."""
    told = Told(scene.card, **scene.environment)
    check(told.say("alloc 10") == "ok", f"{title}: it goes on")
    check(wait_for(lambda: len(scene.started()) == starts and not any(os.path.exists(f"/proc/{pid}") for pid in scene.started())),
          f"{title}: {starts} starts, ended ones: {scene.started()}")
    check(quiet or select.select([told.child.stderr], [], [], PATIENCE)[0], f"{title}: it says something")
    err = told.end(silent=False)
    check(err == "" if quiet else err.count("\n") == 1 and "running without sharing" in err and word in err, f"{title}: {err!r}")
    check(len(scene.started()) == starts, f"{title}: {len(scene.started())} starts, expected {starts}")


WAYS = (folder_in_the_sockets_place, folder_that_cannot_be_made, file_in_the_folders_place, path_that_is_not_full,
        program_that_is_none, program_that_is_a_folder, program_that_is_not_there, library_that_is_missing,
        failure_without_a_word, configuration_that_is_wrong, words_without_end, crash,
        daemon_that_stays_in_the_foreground)


class Unstartable(BuildTest):
    def scenes(self, stack):
        """Each way, loud and quiet. All scripts are written before any process starts, which could hold one open for writing."""
        for prepare in WAYS:
            for quiet in (False, True):
                scene = Scene(stack.enter_context(Card(self.build, memory="256MiB", daemon=False)))
                starts, word = prepare(scene)
                if quiet:
                    scene.environment["GPUSHARE_QUIET"] = "1"
                yield scene, prepare.__name__.replace("_", " ") + (", quiet" if quiet else ""), starts, word, quiet

    def test_every_way(self):
        with contextlib.ExitStack() as stack:
            scenes = list(self.scenes(stack))
            with concurrent.futures.ThreadPoolExecutor(4) as pool:  # most of them only wait
                runs = [(scene[1], pool.submit(attempt, *scene)) for scene in scenes]
                for title, done in runs:
                    with self.subTest(title):
                        done.result()


if __name__ == "__main__":
    main()

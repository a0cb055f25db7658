#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --print and --check say: each line of --json is as docs/gpushare-patch.schema.json has it, whatever comes of the file."""
import json
import os
import shutil
import subprocess
import sys

sys.dont_write_bytecode = True
import tool
from tool import DLSYM, LOADS, MAIN, OPTIONS, Case, run

LIBRARY = DLSYM.replace("main", "f")
SCHEMA = json.load(open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/gpushare-patch.schema.json")))
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
KNOWN = {"$ref", "oneOf", "enum", "type", "minimum", "items", "properties", "required", "dependentRequired", "additionalProperties"}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def faults(value, schema, at="it"):
    """What is wrong with the value, as a list; of JSON Schema 2020-12 only what our schema uses."""
    if set(schema) - KNOWN:
        raise ValueError(f"the schema uses {set(schema) - KNOWN}")
    if "$ref" in schema:
        return faults(value, SCHEMA["$defs"][schema["$ref"].rsplit("/", 1)[1]], at)
    if "oneOf" in schema:
        fits = sum(not faults(value, s, at) for s in schema["oneOf"])
        return [] if fits == 1 else [f"{at} fits {fits} of the forms"]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{at} is {value!r}"]
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(is_type(value, t) for t in types):
        return [f"{at} is {value!r}, not {types}"]
    found = [f"{at} is {value}"] if value is not None and "minimum" in schema and value < schema["minimum"] else []
    for i, item in enumerate(value if "items" in schema else []):
        found += faults(item, schema["items"], f"{at}[{i}]")
    if "properties" in schema:
        needed = set(schema["required"]).union(*(v for k, v in schema.get("dependentRequired", {}).items() if k in value))
        found += [f"{at} lacks {k}" for k in needed - set(value)]
        found += [f"{at} has {k}" for k in set(value) - set(schema["properties"])]
        for k in set(value) & set(schema["properties"]):
            found += faults(value[k], schema["properties"][k], k)
    return found


class Reports(Case):
    def lines(self, form, *args):
        """The objects of a run, each in the form of the schema ("print", "check")."""
        done = subprocess.run([OPTIONS.patch, *self.runtime, "--" + form, "--json", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, timeout=600)
        reports = [json.loads(line) for line in done.stdout.decode("utf-8", "strict").splitlines()]
        for report in reports:
            self.assertEqual(faults(report, {"$ref": "#/$defs/" + form}), [], report)
            self.assertEqual(faults(report, {"oneOf": SCHEMA["oneOf"]}), [], report)
        if len(reports) == 1 and "--tree" not in args and "--venv" not in args:
            self.assertEqual(reports[0]["exit"], done.returncode, reports)
        return reports

    def report(self, form, *args):
        report, = self.lines(form, *args)
        return report

    def outcomes(self):
        """name -> file, one for each way that it can go."""
        made = {"cuda": self.build("cuda"), "plain": self.build("plain", MAIN), "static": self.build("static", MAIN, "-static"),
                "fixed": self.build("fixed", LOADS, "-no-pie"), "missing": self.path("missing"), "folder": self.folder,
                "library": self.build("l.so", LIBRARY + '\nconst char *d = "libcuda.so.1";', "-shared", "-fPIC", "-Wl,-soname,l.so"),
                "payload": self.build("payload"), "damaged": self.build("damaged"), "text": self.path("text"),
                "full": self.build("full", LOADS, "-Wl,--spare-dynamic-tags=0")}
        for name in ("patched", "stripped", "lost", "spoilt", "moved"):
            made[name] = self.build(name)
            runtime = shutil.copy(OPTIONS.runtime, self.folder) if name == "moved" else OPTIONS.runtime
            self.assertEqual(run("--runtime", runtime, made[name])[0], 0)
            if name == "moved":
                os.unlink(runtime)
        subprocess.run(["strip", made["stripped"]], check=True)
        for name, old, new in (("lost", b"gpushare-undo-4", b"gpushare-undo-2"), ("spoilt", b"\nscope=", b"\nsc/pe=")):
            data = open(made[name], "rb").read()
            open(made[name], "wb").write(data.replace(old, new))
        open(made["payload"], "ab").write(b"payload" * 99)
        open(made["text"], "w").write("text" * 99)
        os.truncate(made["damaged"], 5000)
        return made

    def test_every_outcome_has_the_form_of_the_schema(self):
        made = self.outcomes()
        exits = {form: {name: self.report(form, path)["exit"] for name, path in made.items()} for form in ("print", "check")}
        self.assertEqual(exits["print"], {
            "cuda": 0, "plain": 4, "static": 3, "fixed": 0, "missing": 1, "folder": 3, "library": 0, "payload": 0, "damaged": 3,
            "text": 3, "full": 0, "patched": 0, "stripped": 0, "lost": 3, "spoilt": 0, "moved": 0})
        self.assertEqual(exits["check"], {
            "cuda": 4, "plain": 4, "static": 4, "fixed": 4, "missing": 1, "folder": 3, "library": 4, "payload": 4, "damaged": 4,
            "text": 4, "full": 4, "patched": 0, "stripped": 0, "lost": 0, "spoilt": 0, "moved": 1})
        self.assertEqual(len(self.lines("print", *made.values())), len(made))
        self.assertEqual(len(self.lines("check", *made.values())), len(made))

    def test_tree_and_venv(self):
        made = self.outcomes()
        open(self.path("pyvenv.cfg"), "w").close()
        os.mkdir(self.path("bin"))
        os.symlink("/bin/true", self.path("bin/python3"))
        shutil.copy(made["cuda"], self.path("bin"))
        for kind, count in (("--tree", 8), ("--venv", 1)):
            self.assertGreaterEqual(len(self.lines("print", kind, self.folder)), count)
            run(*self.runtime, kind, self.folder)
            self.assertGreaterEqual(len(self.lines("check", kind, self.folder)), count)

    def test_names_that_are_no_text(self):
        path = self.build("a")
        for name in (b"\xed\xa0\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\xff", b"end\xc3"):
            odd = os.path.join(os.fsencode(self.folder), name)
            os.rename(path, odd)
            for form in ("print", "check"):
                self.assertIn("\ufffd", self.report(form, odd)["file"])
            path = odd
        for name in ('na"me\u00e9\\', "new\nline\x1b[31m\x7f", "\U0010ffff\ud7ff\ue000\u0800\u07ff"):
            os.rename(path, self.path(name))
            path = self.path(name)
            for form in ("print", "check"):
                self.assertEqual(self.report(form, path)["file"], path)
            for args in (self.runtime, ["--restore"], ["--print"], ["--check"]):
                self.assertNotIn("\x1b", run(*args, path)[1])

    def test_names_that_others_chose_do_not_reach_a_terminal_as_they_are(self):
        odd = "\x1b[31mlibcuda\n"
        path = self.build(odd, LIBRARY + '\nconst char *d = "libcuda.so.1";', "-shared", "-fPIC", "-Wl,-soname," + odd)
        shutil.copy(self.build("a"), os.path.join(self.folder, odd + "too"))
        for args in (["--print", path], [path, "--output", self.path(odd + "out")], ["--restore", path, "--dry-run"]):
            status, out, _ = run(*self.runtime, *args)
            self.assertNotIn("\x1b", out, args)
        reader, writer = os.openpty()
        done = subprocess.run([OPTIONS.patch, *self.runtime, "--tree", self.folder, "--jobs", "1"], stdout=writer, stderr=writer, timeout=600)
        os.close(writer)
        said = b""
        try:
            while more := os.read(reader, 65536):
                said += more
        except OSError:  # all is read
            pass
        os.close(reader)
        self.assertEqual((done.returncode, b"patching 1 of 4: ?[31mlibcuda?\x1b[K" in said), (0, True), said)
        self.assertEqual(said.replace(b"\x1b[K", b"").count(b"\x1b"), 0, said)

    def test_schema_can_tell(self):
        good = self.report("check", self.build("a"))
        for change in ({"exit": 2}, {"patched": 1}, {"more": 1}, {"tool": False}, {"scope": "all"}):
            self.assertNotEqual(faults({**good, **change}, {"$ref": "#/$defs/check"}), [], change)
        del good["restorable"]
        self.assertEqual(faults(good, {"$ref": "#/$defs/check"}), ["it lacks restorable"])

    def test_print_json(self):
        path = self.build("a")
        report = self.report("print", path)
        self.assertEqual((report["file"], report["patched"], report["scope"], report["machine"], report["routes"], report["problem"]),
                         (path, False, "process", "x86-64", ["dlsym"], None))
        library = self.build("lib.so", LIBRARY + '\nconst char *d = "libcuda.so.1";', "-shared", "-fPIC")
        report = self.report("print", library)
        self.assertEqual((report["scope"], report["kind"], report["routes"]), ("object", "library", ["dlsym"]))

    def test_print_says_why_not(self):
        status, out, _ = run(*self.runtime, "--print", self.build("plain", MAIN))
        self.assertEqual((status, "nothing to do" in out), (4, True))
        self.assertIn("cannot open", self.report("print", self.path("missing"))["problem"])
        self.assertIn("cannot open", self.report("check", self.path("missing"))["problem"])

    def test_print_says_what_patching_and_check_say(self):
        path, other = self.outcomes()["stripped"], self.path("other/libgpushare.so.1")
        status, out, _ = run(*self.runtime, "--print", path)
        self.assertEqual((status, "already patched" in out, OPTIONS.runtime in out), (0, True, True), out)
        report = self.report("print", path)
        self.assertEqual((report["patched"], report["runtime"], report["problem"]), (True, OPTIONS.runtime, None))
        os.mkdir(self.path("other"))
        shutil.copy(OPTIONS.runtime, other)
        self.assertEqual([run("--runtime", other, *args, path)[0] for args in (["--dry-run"], ["--print"])], [3, 3])
        edited = self.build("edited")
        run(*self.runtime, edited)
        data = open(edited, "rb").read()
        open(edited, "wb").write(data.replace(OPTIONS.runtime.encode(), OPTIONS.runtime[:-1].encode() + b"9", 1))
        for args in ([], ["--print"], ["--check"]):
            status, out, errors = run(*self.runtime, *args, edited)
            self.assertEqual((status, "no longer loads" in out + errors), (3, True), (args, out, errors))

    def test_check_json(self):
        path = self.build("a")
        self.assertEqual(self.report("check", path)["patched"], False)
        run(*self.runtime, path)
        report = self.report("check", path)
        self.assertEqual((report["patched"], report["runtime"], report["runtime_present"], report["restorable"]),
                         (True, OPTIONS.runtime, True, True))


if __name__ == "__main__":
    tool.main()

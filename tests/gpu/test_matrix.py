#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The matrix without a card: its page, how pairs of programs are told what to do, the rows' programs with stand-ins for what they
import, and a row on the simulated card. test_matrix.py --build DIR"""
import contextlib
import glob
import importlib
import io
import json
import os
import sys
import tempfile
import textwrap
import time
import types
import unittest
from unittest import mock

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import matrix  # noqa: E402  (beside this file)
import matrix_job  # noqa: E402
import matrix_ranks  # noqa: E402
from matrix_rows import ROWS, Row  # noqa: E402

BUILD = ""


def result(date, **rows):
    return {"date": date, "card": "a card", "rows": {key: {"same": matrix.cell(*value)} for key, value in rows.items()}}


class Page(unittest.TestCase):
    def test_the_committed_page_is_that_of_the_committed_results(self):
        with open(matrix.PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), matrix.page(matrix.load(sorted(glob.glob(matrix.RESULTS)))))

    def test_an_untested_cell_counts_as_failed_and_is_printed_so(self):
        page = matrix.page([])
        self.assertTrue(matrix.failed(matrix.UNTESTED))
        self.assertEqual(page.count("**UNTESTED**"), 3 * len(ROWS))
        self.assertIn(f"{3 * len(ROWS)} cells: 0 passed, 0 failed, {3 * len(ROWS)} untested.", page)

    def test_the_newest_measured_cell_wins(self):
        table = matrix.merge([result("2026-02", torch=("failed", "new")), result("2026-01", torch=("passed", "old")),
                              result("2026-03", torch=("untested", "no card"))])
        self.assertEqual((table["torch", "same"]["state"], table["torch", "same"]["text"]), ("failed", "new"))

    def test_each_row_has_a_program_and_a_key_of_its_own(self):
        self.assertEqual(len({row.key for row in ROWS}), len(ROWS))
        for row in ROWS:
            self.assertTrue(os.path.exists(os.path.join(HERE, row.program)), row.program)


class Overhead(unittest.TestCase):
    def test_a_slower_program_fails_and_an_equal_one_passes(self):
        alone = [[1.0, 1.1], [1.01, 1.1], [1.0, 1.11]]
        self.assertEqual(matrix.overhead_cell(alone, alone)["state"], "passed")
        self.assertEqual(matrix.overhead_cell(alone, [[1.1 * one for one in times] for times in alone])["state"], "failed")

    def test_a_wide_interval_shows_nothing(self):
        one = matrix.overhead_cell([[1.0] * 8] * 3, [[0.8] * 8, [1.25] * 8, [1.0] * 8])
        self.assertEqual(one["state"], "untested")
        self.assertIn("too noisy", one["text"])

    def test_a_wide_interval_below_the_most_passes(self):
        self.assertEqual(matrix.overhead_cell([[1.0] * 8] * 3, [[0.5] * 8, [0.8] * 8, [0.6] * 8])["state"], "passed")

    def test_the_interval_holds_the_mean(self):
        mean, low, high = matrix.interval([[1.0], [1.0], [1.0]], [[1.1], [1.0], [1.2]])
        self.assertTrue(low < mean < high)

    def test_what_programs_of_a_kind_differ_by_is_in_the_interval(self):
        """However many turns: one program of each kind shows +3 %, and so would two unpatched ones."""
        plain, patched = [[one] * 500 for one in (1.00, 1.03, 0.97)], [[one] * 500 for one in (1.03, 1.00, 0.97)]
        _, low, high = matrix.interval(plain, patched)
        self.assertLess(low, -0.03)
        self.assertGreater(high, 0.03)


# --- fake programs, which follow a clock of their own ---

FAKE = r"""
import os, sys, time, types
sys.path.insert(0, os.environ["FAKE_HERE"])
import matrix_job
clock, patched, turns = 0.0, "GS_MATRIX_PATCH" in os.environ, 0
matrix_job.time = types.SimpleNamespace(perf_counter=lambda: clock, monotonic=time.monotonic, sleep=time.sleep)
job = matrix_job.Job("fake")
job.hold()
mine = job.mode.startswith("patched" if patched else "plain")
if mine and job.mode.endswith("-has-no-result"):
    sys.exit("it cannot")
if patched and "GPUSHARE_DEVICE_LIMIT" in os.environ:
    sys.exit("a limit")
job.add(b"another" if mine and job.mode.endswith("-differs") else b"same")
job.done()

def iteration():
    global clock
    clock += 0.013 if mine and job.mode.endswith("-is-slower") else 0.01

def synchronize():
    global turns
    turns += 1
    with open(os.environ["FAKE_LOG"], "a") as log:
        log.write(("patched" if patched else "plain") + "\n")
    if mine and turns >= 7:
        if job.mode.endswith("-dies"):
            sys.exit("it died")
        if job.mode.endswith("-hangs"):
            time.sleep(1000)

job.repeat(iteration, synchronize)
sys.exit(5 if mine and job.mode.endswith("-ends-badly") else 0)
"""


def fake_target(rank, folder):
    """A rank of the test below: one waits for the other, which fails."""
    if rank == 1:
        sys.exit(3)
    with open(os.path.join(folder, "lives"), "w", encoding="ascii"):
        pass
    time.sleep(1000)


class Pairs(unittest.TestCase):
    """Fake programs, with what `gpusharectl status` would say of the patched one."""

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.log = os.path.join(self.folder, "log")
        fake = os.path.join(self.folder, "fake.py")
        with open(fake, "w", encoding="ascii") as file:
            file.write(FAKE)
        self.row = Row("fake", "Fake", fake, ["fine"], {}, [], 1)
        self.status = [{"pid": 0, "demand": 9, "moved_out": 0}]
        self.enterContext(mock.patch.object(matrix, "status_of", lambda bench, programs: self.status))
        self.how = types.SimpleNamespace(columns=["same", "overhead"], seconds=1, turn=0.1)

    @contextlib.contextmanager
    def bench(self):
        """Without a daemon; both programs run in this interpreter."""
        bench = matrix.Bench(self.folder, 120)
        bench.patched = sys.executable
        bench.environment.update(FAKE_HERE=HERE, FAKE_LOG=self.log)
        bench.need_daemon = lambda: None
        try:
            yield bench
        finally:
            bench.__exit__()

    def cells(self, mode="fine", **more):
        row = self.row._replace(arguments=[mode], **more)
        with self.bench() as bench:
            return matrix.run_row(bench, matrix.Started(bench, row, self.how.columns), self.how)

    def test_each_program_has_a_turn_in_each_round(self):
        cells = self.cells("patched-is-slower")
        self.assertEqual(cells["overhead"]["state"], "failed")
        self.assertRegex(cells["overhead"]["text"],
                         r"^\+30\.0 % \(\+30\.0 to \+30\.0 %, 3 programs of each kind, [0-9]+ turns of 0\.10 s each\)$")
        with open(self.log, encoding="ascii") as file:
            turns = [name for name, same in zip(*[iter(file.read().split())] * 2, strict=True) if name == same]
        first = 6  # before the rounds only an unpatched one, whose turns of 1, 2 and 4 iterations are measured for their length
        self.assertEqual(turns[:first], ["plain"] * first)
        rounds = list(zip(*[iter(turns[first:])] * 6, strict=True))
        self.assertGreater(len(rounds), matrix.FEWEST_ROUNDS)
        for one in rounds:
            self.assertEqual(sorted(one), ["patched"] * 3 + ["plain"] * 3)
        self.assertGreater(len(set(rounds)), 1)  # the order differs

    def test_equal_programs_pass(self):
        cells = self.cells()
        self.assertEqual(cells["same"]["state"], "passed")
        self.assertRegex(cells["overhead"]["text"], r"^\+0\.0 % \(\+0\.0 to \+0\.0 %, ")
        self.assertEqual(cells["overhead"]["state"], "passed")
        self.assertEqual(cells["moved"], matrix.UNTESTED)

    def test_a_program_that_dies_in_its_turns_keeps_its_result(self):
        cells = self.cells("patched-dies")
        self.assertEqual(cells["same"]["state"], "passed")
        self.assertEqual(cells["overhead"], {"state": "failed", "text": "exit 1: it died"})

    def test_an_unpatched_program_that_dies_says_nothing_of_the_patched_one(self):
        cells = self.cells("plain-dies")
        self.assertEqual(cells["same"]["state"], "passed")
        self.assertEqual(cells["overhead"], {"state": "untested", "text": "unpatched: exit 1: it died"})
        cells = self.cells("plain-has-no-result")
        self.assertEqual(cells["same"], {"state": "untested", "text": "unpatched: exit 1: it cannot"})

    def test_a_program_that_hangs_in_its_turns_is_killed(self):
        unhindered = matrix.Program.turn
        with self.bench() as bench:
            run = matrix.Started(bench, self.row._replace(arguments=["patched-hangs"]), self.how.columns)

            def turn(program, count):
                hangs = program in (run.patched, *run.more[True]) and program.turns == 3
                with mock.patch.object(matrix, "TURN_LIMIT", 1 if hangs else 600):
                    return unhindered(program, count)

            with mock.patch.object(matrix.Program, "turn", turn):
                cells = matrix.run_row(bench, run, self.how)
            self.assertIsNotNone(run.patched.child.poll())
        self.assertEqual(cells["same"]["state"], "passed")
        self.assertEqual(cells["overhead"], {"state": "failed", "text": "10 iterations did not end within 1 s"})

    def test_another_result_fails(self):
        cells = self.cells("patched-differs")
        self.assertIn("alone result patched-differs", cells["same"]["text"])
        self.assertEqual([cells[column]["state"] for column in self.how.columns], ["failed", "failed"])

    def test_a_bad_end_fails_both(self):
        cells = self.cells("patched-ends-badly")
        self.assertEqual([cells[column]["text"] for column in self.how.columns], ["exit 5: nothing on stderr"] * 2)

    def test_memory_that_was_moved_spoils_the_overhead(self):
        self.status[0]["moved_out"] = 4096
        cells = self.cells()
        self.assertEqual((cells["same"]["state"], cells["overhead"]["state"]), ("passed", "failed"))
        self.assertIn("4096 bytes were moved out", cells["overhead"]["text"])

    def test_a_program_that_was_not_routed_fails(self):
        self.status[0]["demand"] = 0
        with mock.patch.object(matrix, "ROUTED_LIMIT", 0.1):
            cells = self.cells()
        self.assertEqual([cells[column]["text"] for column in self.how.columns],
                         ["the daemon knows of no memory of the patched program"] * 2)

    def test_a_row_that_cannot_repeat_says_why(self):
        cells = self.cells(no_overhead="its work is done once")
        self.assertEqual((cells["same"]["state"], cells["overhead"]), ("passed", matrix.cell("untested", "its work is done once")))

    def test_a_row_on_two_cards_computes_one_after_the_other(self):
        self.assertEqual(self.cells(cards=2)["same"]["state"], "passed")

    def test_programs_hold_until_they_may_begin(self):
        with self.bench() as bench:
            program = bench.start(self.row, True)
            self.assertIsNone(program.look_for_result())
            program.begin()
            program.result(time.monotonic() + 120)
            program.end(time.monotonic() + 120)

    def test_a_mistake_of_ours_loses_one_cell_only(self):
        with mock.patch.object(matrix, "overhead", side_effect=KeyError("mistake")):
            cells = self.cells()
        self.assertEqual(cells["overhead"], {"state": "failed", "text": "matrix.py: KeyError('mistake')"})
        self.assertEqual(cells["same"]["state"], "passed")


class Rows(unittest.TestCase):
    """Each program of a row with stand-ins for what it imports: it holds, stops in the middle, gives a result and repeats."""

    NAMES = ("torch", "torch.nn", "torch.nn.parallel", "torch.utils", "torch.utils.data", "torch.distributed", "torch.distributed.fsdp",
             "torch.distributed.device_mesh", "torch.distributed.tensor", "torch.distributed.tensor.parallel", "jax", "jax.numpy", "numpy",
             "cupy", "numba", "triton", "triton.language", "transformers")

    def stand_ins(self):
        modules = {name: mock.MagicMock(name=name) for name in self.NAMES}
        modules["jax"].default_backend.return_value = "gpu"
        modules["torch"].distributed = modules["torch.distributed"]
        modules["torch.utils.data"].Dataset = object
        items = mock.MagicMock(__len__=lambda self: 4)
        items.__iter__.side_effect = lambda: iter([mock.MagicMock() for _ in range(4)])
        modules["torch.utils.data"].DataLoader.return_value = items
        return modules

    def run_program(self, row):
        """What it printed, the answers to its turns, how often it stopped in the middle."""
        stops = []
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.dict(os.environ, {"GS_MATRIX_TOLD": folder}))
            stack.enter_context(mock.patch.dict(sys.modules, self.stand_ins()))
            name = row.program.removesuffix(".py")
            for one in (name, "matrix_torch"):
                sys.modules.pop(one, None)
            program, other = importlib.import_module(name), importlib.import_module("matrix_torch")
            for module in {program, other}:
                stack.enter_context(mock.patch.object(module, "middle", lambda *_: stops.append(1), create=True))
            stack.enter_context(mock.patch.object(sys, "argv", [row.program, *row.arguments]))
            stack.enter_context(mock.patch.object(matrix_job.Job, "add", lambda job, array: job.hash.update(b"array")))
            out = stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            waited = self.tell_turns(stack, folder)
            if row.cards > 1 and name == "matrix_ranks":
                program.rank_main(0, "store")
            else:
                program.main()
            self.assertEqual(waited[0], ["begin"], "it must hold first")
            return out.getvalue(), glob.glob(os.path.join(folder, "seconds.*")), len(stops)

    @staticmethod
    def tell_turns(stack, folder):
        """Instead of matrix.py: the third answer is followed by the end. Returns the list of what was waited for."""
        waited = []

        def wait_for(*paths, **_):
            waited.append([os.path.basename(path) for path in paths])
            path = paths[-1]
            if waited[-1][-1] == "turn.3":
                return paths[0]
            matrix_job.write_whole(path, "2")
            return path

        stack.enter_context(mock.patch.object(matrix_job, "wait_for", wait_for))
        return waited

    def test_each_python_program(self):
        for row in ROWS:
            if row.program == "matrix_library.py" or row.key == "ctypes":
                continue  # below
            with self.subTest(row.key):
                printed, answers, stops = self.run_program(row)
                self.assertRegex(printed, rf"^result {row.arguments[0]} [0-9a-f]{{32}}\n$")
                self.assertEqual(len(answers), 2)
                self.assertEqual(stops, 1)

    def test_a_failed_rank_ends_the_others(self):
        with tempfile.TemporaryDirectory() as folder, mock.patch.object(sys, "argv", [sys.argv[0], "--build", BUILD]):
            self.assertFalse(matrix_ranks.run_ranks(fake_target, 2, folder))


# --- matrix_library.cu, with libraries that the host compiler can build ---

HEADERS = {
    "cuda_runtime.h": """
        #include <string.h>
        #include <stdlib.h>
        typedef void *cudaStream_t;
        enum { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
        template <typename T> int cudaMalloc(T **there, size_t bytes) { return (*there = (T *)malloc(bytes)) == NULL; }
        static inline int cudaMemcpy(void *to, const void *from, size_t bytes, int) { memcpy(to, from, bytes); return 0; }
        static inline int cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, cudaStream_t) { memcpy(to, from, bytes); return 0; }
        static inline int cudaMemset(void *at, int value, size_t bytes) { memset(at, value, bytes); return 0; }
        static inline int cudaMemcpy2D(void *to, size_t, const void *, size_t, size_t, size_t, int) { return to == NULL; }
        static inline int cudaDeviceSynchronize(void) { return 0; }
        static inline int cudaSetDevice(int) { return 0; }
        """,
    "cublas_v2.h": """
        typedef int cublasHandle_t;
        enum { CUBLAS_OP_N };
        static inline int cublasCreate(cublasHandle_t *) { return 0; }
        static inline int cublasSgemm(cublasHandle_t, int, int, int, int, int, const float *one, const float *x, int, const float *, int,
                                      const float *, float *y, int) { y[0] = *one * x[0]; return 0; }
        """,
    "cudnn.h": """
        typedef int cudnnHandle_t; typedef int cudnnTensorDescriptor_t;
        enum { CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL };
        static inline int cudnnCreate(cudnnHandle_t *) { return 0; }
        static inline int cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *) { return 0; }
        static inline int cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t, int, int, int, int, int, int) { return 0; }
        static inline int cudnnSoftmaxForward(cudnnHandle_t, int, int, const float *, cudnnTensorDescriptor_t, const float *x, const float *,
                                              cudnnTensorDescriptor_t, float *y) { y[0] = x[0] + 1; return 0; }
        """,
    "cufft.h": """
        typedef int cufftHandle; typedef float cufftComplex;
        enum { CUFFT_C2C, CUFFT_FORWARD, CUFFT_INVERSE };
        static inline int cufftPlan1d(cufftHandle *, int, int, int) { return 0; }
        static inline int cufftExecC2C(cufftHandle, const cufftComplex *x, cufftComplex *y, int) { y[0] = x[0] + 1; return 0; }
        """,
    "cusolverDn.h": """
        typedef int cusolverDnHandle_t;
        enum { CUBLAS_FILL_MODE_LOWER };
        static inline int cusolverDnCreate(cusolverDnHandle_t *) { return 0; }
        static inline int cusolverDnSpotrf_bufferSize(cusolverDnHandle_t, int, int, float *, int, int *bytes) { *bytes = 4; return 0; }
        static inline int cusolverDnSpotrf(cusolverDnHandle_t, int, int, float *x, int, float *, int, int *) { x[0] += 1; return 0; }
        """,
    "nccl.h": """
        typedef int ncclComm_t;
        enum { ncclFloat, ncclMax };
        static inline int ncclCommInitAll(ncclComm_t *, int, const int *) { return 0; }
        static inline int ncclGroupStart(void) { return 0; }
        static inline int ncclGroupEnd(void) { return 0; }
        static inline int ncclAllReduce(const float *, float *y, size_t, int, int, ncclComm_t, cudaStream_t) { y[0] += 1; return 0; }
        """,
}

# nvcc's place: it takes nvcc's options and calls the host's compiler
NVCC = """\
#!/bin/sh
for word; do case $word in -D*) use=$word ;; *.cu) source=$word ;; esac; [ "$before" != -o ] || out=$word; before=$word; done
exec g++ -Wall -Wextra -x c++ -I "$FAKE_HEADERS" "$use" -o "$out" "$source"
"""


class Libraries(unittest.TestCase):
    def test_each_library_gives_a_result_and_repeats(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in HEADERS.items():
                with open(os.path.join(folder, name), "w", encoding="ascii") as file:
                    file.write(textwrap.dedent(text))
            os.mkdir(os.path.join(folder, "bin"))
            with open(os.path.join(folder, "bin", "nvcc"), "w", encoding="ascii", opener=lambda path, how: os.open(path, how, 0o755)) as file:
                file.write(NVCC)
            bench = matrix.Bench(folder, 120)
            bench.environment.update(FAKE_HEADERS=folder, PATH=f"{folder}/bin:{os.environ['PATH']}")
            self.addCleanup(bench.__exit__)
            rows = [row for row in ROWS if row.program == "matrix_library.py" and row.arguments[1] == "shared"]
            self.assertEqual(len(rows), 5)
            results = {self.result_of(bench, row) for row in rows}
            self.assertEqual(len(results), len(rows))

    def result_of(self, bench, row):
        program, deadline = bench.start(row, False), time.monotonic() + 120
        program.begin()
        said = program.result(deadline)
        self.assertGreater(program.turn(3), 0)
        self.assertGreater(program.turn(1000), 0)
        program.end(deadline)
        return said

    def test_a_program_that_cannot_be_built_says_why(self):
        bench = matrix.Bench(BUILD, 120)
        self.addCleanup(bench.__exit__)
        bench.environment["PATH"] = "/usr/bin:/bin"
        bench.environment["CUDA_HOME"] = "/nonexistent"
        row = next(row for row in ROWS if row.program == "matrix_library.py")
        with self.assertRaisesRegex(matrix.Failure, "nvcc is not installed"):
            bench.start(row, False).result(time.monotonic() + 120)


class OnTheSimulatedCard(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(mock.patch.dict(os.environ, {"SIMCUDA_CARD": os.path.join(self.folder, "card"),
                                                       "LD_LIBRARY_PATH": os.path.join(BUILD, "tests", "simcuda")}))
        os.mkdir(os.environ["SIMCUDA_CARD"])
        self.enterContext(mock.patch.object(matrix, "BALLAST_GIB", 0))
        self.json, self.page = os.path.join(self.folder, "new.json"), os.path.join(self.folder, "page.md")

    def run_matrix(self, rows, *words, cards=("a card",)):
        """The rows' cells, as the file has them."""
        with mock.patch.object(sys, "argv", ["matrix.py", "--build", BUILD, "--json", self.json, "--page", self.page, *words]), \
                mock.patch.object(matrix, "cards_here", lambda: list(cards)), mock.patch.object(matrix, "ROWS", rows), \
                contextlib.redirect_stdout(io.StringIO()):
            status = matrix.main()
        with open(self.json, encoding="utf-8") as file:
            return status, json.load(file)["rows"]

    def test_rows_are_measured_and_a_broken_one_loses_no_other(self):
        good = next(row for row in ROWS if row.key == "ctypes")
        rows = [good, good._replace(key="broken", arguments=["none"]), good._replace(key="two", cards=2),
                good._replace(key="absent", packages=["no_such_package"]), good._replace(key="last")]
        for ahead in ([], ["--no-ahead"]):  # both ways
            status, cells = self.run_matrix(rows, "--seconds", "0.1", *ahead)
            self.assertTrue(status)
            self.assertEqual(list(cells), ["ctypes", "broken", "two", "absent", "last"])
            for key in ("ctypes", "last"):
                self.assertEqual(cells[key]["same"]["state"], "passed", cells[key])
                self.assertRegex(cells[key]["moved"]["text"], "two copies right, [0-9.]+ GiB moved out")
                self.assertRegex(cells[key]["overhead"]["text"], r"% \(.* programs of each kind, ")
            self.assertIn("unpatched: exit 1", cells["broken"]["same"]["text"])
            self.assertEqual(cells["two"]["same"], matrix.cell("untested", "needs 2 cards, 1 here"))
            self.assertIn("is not installed", cells["absent"]["moved"]["text"])

    def test_columns_and_budget_choose_what_is_run(self):
        row = next(row for row in ROWS if row.key == "ctypes")
        cells = self.run_matrix([row], "--columns", "same")[1]["ctypes"]
        self.assertEqual((cells["same"]["state"], cells["moved"], cells["overhead"]), ("passed", matrix.UNTESTED, matrix.UNTESTED))
        self.assertEqual(self.run_matrix([row], "--budget", "-1")[1], {})

    def test_without_a_card_all_is_untested(self):
        status, cells = self.run_matrix(ROWS, "-k", "ctypes", cards=())
        self.assertTrue(status)
        self.assertEqual({key: one["same"]["state"] for key, one in cells.items()}, {"ctypes": "untested"})


if __name__ == "__main__":
    place = sys.argv.index("--build")
    BUILD = os.path.abspath(sys.argv[place + 1])
    del sys.argv[place:place + 2]
    unittest.main(warnings="ignore")

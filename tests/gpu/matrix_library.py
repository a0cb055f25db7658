# SPDX-License-Identifier: Apache-2.0
"""The library rows of the matrix: matrix_library.py LIBRARY shared|static. Builds matrix_library.cu with that CUDA runtime, patches it
with GS_MATRIX_PATCH where that is set, and runs it. The built program itself repeats its work as matrix.py tells it."""
import os
import shutil
import subprocess
import tempfile

from matrix_job import Job

HERE = os.path.dirname(os.path.abspath(__file__))
LINKED = {"cublas": "cublas", "cudnn": "cudnn", "cufft": "cufft", "cusolver": "cusolver", "nccl": "nccl"}
RESULT_BYTES = 4 << 20  # of each card


def build(job, program):
    nvcc = shutil.which("nvcc") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "nvcc")
    if not os.path.exists(nvcc):
        raise SystemExit("nvcc is not installed")
    done = subprocess.run([nvcc, "-O2", f"-cudart={job.variant}", f"-DUSE_{job.mode.upper()}", "-o", program,
                           os.path.join(HERE, "matrix_library.cu"), f"-l{LINKED[job.mode]}"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"nvcc: {(done.stdout.strip().splitlines() or ['failed'])[-1]}")
    if "GS_MATRIX_PATCH" in os.environ:
        subprocess.run([os.environ["GS_MATRIX_PATCH"], "-q", program], check=True)


def main():
    job = Job(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        program = os.path.join(folder, job.mode)
        build(job, program)
        job.hold()
        with subprocess.Popen([program, str(job.ballast_gib)], stdout=subprocess.PIPE) as child:
            result = child.stdout.read()  # it closes its stdout after the result
            if len(result) < RESULT_BYTES:
                raise SystemExit(f"{job.mode} ended with {child.wait()}")
            job.add(result)
            job.done()
            if child.wait() != 0:
                raise SystemExit(f"{job.mode} ended with {child.returncode}")


if __name__ == "__main__":
    main()

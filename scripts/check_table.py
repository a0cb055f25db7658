#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares wrap/driver_api.def with the headers of a CUDA toolkit, such as the newest wheel's. check_table.py INCLUDE...

INCLUDE is a folder with cuda.h and cudaTypedefs.h; tests/runtime/calls/fetch_cudarts.sh FOLDER newest fetches one. Checked
are: each form of a function in the headers has a row, and each row up to their version is there; tests/wrap/table_types.c
compiles with them (the prototypes of the wrappers); what wrap/newer_types.h declares for older headers is the same.
Exit status: 0 it agrees, 1 not, 2 bad usage.
"""
import os
import re
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROW = re.compile(r"^GS_\w+\((\w+), (\w+), (\d+), ?(\w*),", re.MULTILINE)
FORM = re.compile(r"typedef\s+CUresult\s*\(CUDAAPI \*(PFN_(\w+)_v(\d+)(_pt[sd][zs])?)\)\(([^)]*)\);")
NEWER = re.compile(r"^GS_NEWER(_BOTH)?\((\w+), (\d+), (.*?)\)$", re.MULTILINE | re.DOTALL)
# the numbers of the structures and enumerations that wrappers look into
NUMBERS = ("sizeof(CUDA_FABRIC_COPY_BATCH_OP_v1)", "offsetof(CUDA_FABRIC_COPY_BATCH_OP_v1, dst)",
           "offsetof(CUDA_FABRIC_COPY_BATCH_OP_v1, size)", "offsetof(CUfabricCpyOperand, op.ptr.ptr)",
           "CU_FABRIC_COPY_OPERAND_TYPE_POINTER", "sizeof(CUlogicalEndpointId)", "sizeof(CUlogicalEndpointIpcHandleType)",
           "sizeof(CUtensorMapAllocClass)", "sizeof(CUgraphRecaptureStatus)")


def read(*path):
    with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
        return file.read()


def types_of(parameters):
    """The types of a list of parameters, without names and spaces: two spellings of one prototype are the same."""
    types = []
    for parameter in parameters.split(","):
        words = re.findall(r"\w+|\*", parameter)
        known = {"int", "long", "char", "unsigned", "void", "size_t"}
        if len([word for word in words if word not in ("*", "const")]) > 1 and words[-1] not in known and words[-1] != "*":
            words.pop()
        types.append(" ".join(re.sub(r"^CUdeviceptr$", "CUdeviceptr_v2", word) for word in words
                              if word != "const" or "*" in words))
    return ", ".join(types)


def check_rows(include, version):
    forms = {(base, since, variant or ""): parameters for name in ("cudaTypedefs.h", "cudaProfilerTypedefs.h")
             for _, base, since, variant, parameters in FORM.findall(read(include, name))}
    declared = {(base, since, variant.strip()): parameters
                for both, base, since, rest in NEWER.findall(read(TOP, "wrap", "newer_types.h"))
                for variant, parameters in ([("", rest), ("_ptsz", rest)] if both else [rest.split(",", 1)])}
    rows = {(base, since, variant) for _, base, since, variant in ROW.findall(read(TOP, "wrap", "driver_api.def"))}
    faults = [f"no row for PFN_{base}_v{since}{variant}" for base, since, variant in sorted(set(forms) - rows)]
    faults += [f"the headers have no PFN_{base}_v{since}{variant}" for base, since, variant in sorted(rows - set(forms))
               if int(since) <= version and (base, since, variant) not in declared]
    faults += [f"newer_types.h: PFN_{form[0]}_v{form[1]}{form[2]} has ({types_of(declared[form])}), "
               f"the headers ({types_of(forms[form])})"
               for form in sorted(set(declared) & set(forms)) if types_of(forms[form]) != types_of(declared[form])]
    return faults


def compile_with(include, *arguments):
    return subprocess.run(["cc", "-std=gnu17", "-Wall", "-D__CUDA_API_VERSION_INTERNAL", "-I", TOP, "-isystem", include, *arguments],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def print_numbers(include):
    """NUMBERS as a compiler with these headers sees them."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = os.path.join(folder, "numbers.c"), os.path.join(folder, "numbers")
        with open(source, "w", encoding="utf-8") as file:
            file.write('#include <stddef.h>\n#include <stdio.h>\n#include "wrap/newer_types.h"\nint main(void)\n{\n')
            file.writelines(f'    printf("{number} = %zu\\n", (size_t)({number}));\n' for number in NUMBERS)
            file.write("}\n")
        done = compile_with(include, source, "-o", program)
        return done.stdout or subprocess.run([program], stdout=subprocess.PIPE, text=True, check=True).stdout


def check_headers(include, built_with):
    version = int(re.search(r"#define CUDA_VERSION (\d+)", read(include, "cuda.h")).group(1))
    faults = check_rows(include, version)
    done = compile_with(include, "-fsyntax-only", os.path.join(TOP, "tests", "wrap", "table_types.c"))
    if done.returncode != 0:
        faults.append("tests/wrap/table_types.c: " + done.stdout)
    if print_numbers(include) != print_numbers(built_with):
        faults.append(f"newer_types.h: {print_numbers(built_with)}\nthe headers: {print_numbers(include)}")
    for fault in faults:
        print(f"{include}: {fault}", file=sys.stderr)
    return version, not faults


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    built_with = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
    outcomes = [check_headers(include, built_with) for include in sys.argv[1:]]
    agree = all(good for _, good in outcomes)
    versions = ", ".join(f"{version // 1000}.{version % 1000 // 10}" for version, _ in outcomes)
    print(f"the table and the headers of CUDA {versions} {'agree' if agree else 'differ'}")
    sys.exit(0 if agree else 1)


if __name__ == "__main__":
    main()

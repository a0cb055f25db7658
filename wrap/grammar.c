/* SPDX-License-Identifier: Apache-2.0
 *
 * grammar.c: owns the lists of options. Sources: GCC manual "Option Summary", clang --help, nvcc
 * 13.0 --help. Constant; any thread.
 */
#include "wrap/grammar.h"

#include <stddef.h>

/* otherwise each word gets a line of its own */
/* clang-format off */
const char *const gs_grammar_none[] = {NULL};

static const char *const gcc_stop[] = {
    "-c", "-S", "-E", "-M", "-MM", "-r", "-fsyntax-only", "--version", "-cc1", "-cc1as",
    "--analyze", "--precompile", "-emit-ast", "--compile", "--assemble", "--preprocess",
    "--dependencies", "--user-dependencies", NULL};
static const char *const gcc_stop_prefix[] = {
    "-print-", "--print-", "-dumpm", "-dumpv", "-dumps", "-dumpf", "--help", "--target-help",
    NULL};
static const char *const gcc_value[] = {
    "-o", "-x", "-I", "-L", "-D", "-U", "-A", "-B", "-T", "-u", "-z", "-e", "-l", "-include",
    "-imacros", "-isystem", "-idirafter", "-iquote", "-iprefix", "-iwithprefix",
    "-iwithprefixbefore", "-isysroot", "-imultilib", "-imultiarch", "-MF", "-MT", "-MQ",
    "-Xlinker", "-Xassembler", "-Xpreprocessor", "-Xclang", "-Xarch_host", "-Xarch_device",
    "-Xcuda-ptxas", "-Xcuda-fatbinary", "-Xopenmp-target", "-mllvm", "-mthread-model",
    "-target", "--param", "-aux-info", "-dumpbase", "-dumpbase-ext", "-dumpdir", "-wrapper",
    "-specs", "--output", "--language", "--entry", "--for-linker", "-arch", "--sysroot",
    "-fplugin-arg", "-gcc-toolchain", "--config", "-serialize-diagnostics",
    "-working-directory", NULL};
static const char *const gcc_header[] = {
    ".h", ".hh", ".hpp", ".hxx", ".h++", ".H", ".tcc", NULL};

static const char *const nvcc_stop[] = {
    "-c", "--compile", "-dc", "--device-c", "-dw", "--device-w", "-dlink", "--device-link",
    "-lib", "--lib", "-E", "--preprocess", "-ptx", "--ptx", "-cubin", "--cubin", "-fatbin",
    "--fatbin", "-optix-ir", "--optix-ir", "-ltoir", "--ltoir", "-cuda", "--cuda", "-M",
    "--generate-dependencies", "-MM", "--generate-nonsystem-dependencies", "-dryrun",
    "--dryrun", "-V", "--version", "-h", "--help", "-code-ls", "--list-gpu-code", "-arch-ls",
    "--list-gpu-arch", "-clean", "--clean-targets", "-clean-targets", "-r",
    "--relocatable-link", "-fdevice-syntax-only", "--fdevice-syntax-only", NULL};
static const char *const nvcc_value[] = {
    "-MF", "--dependency-output", "-o", "--output-file", "-include", "--pre-include", "-l",
    "--library", "-D", "--define-macro", "-U", "--undefine-macro", "-I", "--include-path",
    "-isystem", "--system-include", "-L", "--library-path", "-odir", "--output-directory",
    "-ccbin", "--compiler-bindir", "-arbin", "--archiver-binary", "-cudart", "--cudart",
    "-cudadevrt", "--cudadevrt", "-ldir", "--libdevice-directory", "-target-dir",
    "--target-directory", "-opt-info", "--optimization-info", "-O", "--optimize", "-dopt",
    "--dopt", "-ftemplate-backtrace-limit", "--ftemplate-backtrace-limit", "-ftemplate-depth",
    "--ftemplate-depth", "-x", "--x", "-std", "--std", "-m", "--machine", "-Xcompiler",
    "--compiler-options", "-Xlinker", "--linker-options", "-Xarchive", "--archive-options",
    "-Xptxas", "--ptxas-options", "-Xnvlink", "--nvlink-options", "-Xfatbin", "-Xcudafe",
    "-static-global-template-stub", "--static-global-template-stub",
    "-device-entity-has-hidden-visibility", "--device-entity-has-hidden-visibility", "-t",
    "--threads", "-split-compile", "--split-compile", "-split-compile-extended",
    "--split-compile-extended", "-fdevice-time-trace", "--fdevice-time-trace", "-keep-dir",
    "--keep-dir", "-time", "--time", "-run-args", "--run-args", "-idp", "--input-drive-prefix",
    "-ddp", "--dependency-drive-prefix", "-dp", "--drive-prefix", "-MT",
    "--dependency-target-name", "-arch", "--gpu-architecture", "-code", "--gpu-code",
    "-gencode", "--generate-code", "-rdc", "--relocatable-device-code", "-e", "--entries",
    "-maxrregcount", "--maxrregcount", "-ftz", "--ftz", "-prec-div", "--prec-div",
    "-prec-sqrt", "--prec-sqrt", "-fmad", "--fmad", "-default-stream", "--default-stream",
    "-diag-error", "--diag-error", "-diag-suppress", "--diag-suppress", "-diag-warn",
    "--diag-warn", "-hls", "--host-linker-script", "-brief-diag", "--brief-diagnostics",
    "-jtd", "--jump-table-density", "-device-stack-protector", "--device-stack-protector",
    "-compress-mode", "--compress-mode", "-frandom-seed", "--frandom-seed", "-sanitize",
    "--sanitize", "-qpp-config", "--qpp-config", NULL};
static const char *const nvcc_file[] = {
    "-optf", "--options-file", NULL};
/* clang-format on */

const struct gs_grammar gs_grammar_gcc = {gcc_stop, gcc_stop_prefix, gcc_value, gs_grammar_none,
                                          gcc_header};
const struct gs_grammar gs_grammar_nvcc = {nvcc_stop, gs_grammar_none, nvcc_value, nvcc_file,
                                           gs_grammar_none};

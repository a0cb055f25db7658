/* SPDX-License-Identifier: Apache-2.0
 *
 * test_phase.c: which command lines link. Each line is one case; response files are made for
 * it.
 */
#include "wrap/args.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct sample {
    const char *line;
    bool links;
};

static struct gs_phase read_line(enum gs_compiler compiler, const char *line)
{
    struct gs_args args = {0};
    struct gs_phase phase;
    struct gs_err err = {0};

    assert_int_equal(gs_args_split(&args, line), 0);
    if (gs_phase_read(compiler, &args, &phase, &err) != 0)
        fail_msg("%s: %s", line, err.text);
    gs_args_deinit(&args);
    return phase;
}

static void check_sample(enum gs_compiler compiler, const struct sample *sample)
{
    for (; sample->line != NULL; sample++) {
        struct gs_phase phase = read_line(compiler, sample->line);

        if (phase.links != sample->links)
            fail_msg("'%s': links is %d", sample->line, phase.links);
    }
}

static void read_gcc_lines_that_link(void **state)
{
    static const struct sample samples[] = {
        {"a.c", true},
        {"a.o b.o -o prog", true},
        {"-o -c a.c", true}, /* a program called -c */
        {"-shared -fPIC a.c -o a.so", true},
        {"-Xlinker -E a.o", true},
        {"-MD -MF -E a.c", true}, /* dependencies beside the link, into a file called -E */
        {"-I -S a.c", true},
        {"a.c -x none b.h", true},
        {"-lfoo", true},
        {"-v a.c", true},
        {"-x c -", true},
        {"-Wl,-rpath,-r a.o",
         false}, /* ld would take it as the path; rather too few than wrong */
        {NULL, false},
    };

    (void)state;
    check_sample(GS_COMPILER_CC, samples);
    check_sample(GS_COMPILER_CXX, samples);
}

static void read_gcc_lines_that_stop_before(void **state)
{
    static const struct sample samples[] = {
        {"-c a.c", false},
        {"a.c -S", false},
        {"-E a.c", false},
        {"-M a.c", false},
        {"-MM a.c", false},
        {"--version", false},
        {"-v", false},
        {"", false},
        {"-dumpmachine", false},
        {"-dumpversion", false},
        {"-print-search-dirs", false},
        {"--print-prog-name=ld", false},
        {"-fsyntax-only a.c", false},
        {"--help=warnings", false},
        {"-r a.o b.o", false},
        {"-Wl,-r a.o", false},
        {"-Xlinker -r a.o", false},
        {"a.h", false},
        {"-x c-header a.c", false},
        {"-xc++-header a.c", false},
        {"-O2 -o a", false},
        {NULL, false},
    };

    (void)state;
    check_sample(GS_COMPILER_CC, samples);
}

static void read_nvcc_lines(void **state)
{
    static const struct sample samples[] = {
        {"a.cu -o a", true},
        {"-Xcompiler -c a.cu", true}, /* the host compiler's business */
        {"-gencode arch=compute_80,code=sm_80 a.cu", true},
        {"-o -ptx a.cu", true},
        {"-rdc=true a.o b.o", true},
        {"-shared a.cu -o a.so", true},
        {"--run a.cu", true},
        {"-link a.o", true},
        {"-c a.cu", false},
        {"-dc a.cu", false},
        {"--device-c a.cu", false},
        {"-dlink a.o", false},
        {"-ptx a.cu", false},
        {"--cubin a.cu", false},
        {"-fatbin a.cu", false},
        {"-lib a.o -o a.a", false},
        {"-E a.cu", false},
        {"--dryrun a.cu", false},
        {"--version", false},
        {"-V", false},
        {"--list-gpu-arch", false},
        {"-r a.o", false},
        {NULL, false},
    };

    (void)state;
    check_sample(GS_COMPILER_NVCC, samples);
    assert_true(read_line(GS_COMPILER_NVCC, "-ccbin clang++ a.cu").clang_host);
    assert_true(read_line(GS_COMPILER_NVCC, "-ccbin=/usr/bin/clang++-14 a.cu").clang_host);
    assert_false(read_line(GS_COMPILER_NVCC, "-ccbin g++ a.cu").clang_host);
}

static void read_nvcc_variables_count_too(void **state)
{
    (void)state;
    setenv("NVCC_APPEND_FLAGS", "-O2 -c", 1);
    assert_false(read_line(GS_COMPILER_NVCC, "a.cu").links);
    assert_true(read_line(GS_COMPILER_CC, "a.c").links);
    unsetenv("NVCC_APPEND_FLAGS");
    setenv("NVCC_PREPEND_FLAGS", "-ccbin 'clang++'", 1);
    assert_true(read_line(GS_COMPILER_NVCC, "a.cu").clang_host);
    unsetenv("NVCC_PREPEND_FLAGS");
}

static void read_static_is_seen(void **state)
{
    (void)state;
    assert_true(read_line(GS_COMPILER_CC, "-static a.c").is_static);
    assert_true(read_line(GS_COMPILER_CC, "-static-pie a.c").is_static);
    assert_false(read_line(GS_COMPILER_CC, "-static-libgcc a.c").is_static);
    assert_false(read_line(GS_COMPILER_CC, "-Wl,-Bstatic -lfoo -Wl,-Bdynamic a.c").is_static);
}

static void write_file(char *path, const char *text)
{
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    close(fd);
}

static void read_response_file_counts_as_its_words(void **state)
{
    char path[] = "/tmp/gs test phase XXXXXX", line[64];

    (void)state;
    write_file(path, "-O2 '-DX=a b'\n-c");
    snprintf(line, sizeof line, "a.c '@%s'", path);
    assert_false(read_line(GS_COMPILER_CC, line).links);
    snprintf(line, sizeof line, "a.cu -optf '%s'", path);
    assert_false(read_line(GS_COMPILER_NVCC, line).links);
    snprintf(line, sizeof line, "a.cu '--options-file=%s'", path);
    assert_false(read_line(GS_COMPILER_NVCC, line).links);
    snprintf(line, sizeof line, "-o '@%s' a.c", path); /* gcc reads it there as well */
    assert_false(read_line(GS_COMPILER_CC, line).links);
    unlink(path);
    assert_true(read_line(GS_COMPILER_CC, "@/nonexistent").links);
}

static void read_response_file_ends_with_option_takes_next_word(void **state)
{
    char path[] = "/tmp/gs-test-phase-XXXXXX", line[64];

    (void)state;
    write_file(path, "a.c -o");
    snprintf(line, sizeof line, "@%s -c", path);
    assert_true(read_line(GS_COMPILER_CC, line).links);
    unlink(path);
}

static void read_response_file_that_names_itself_fails(void **state)
{
    char path[] = "/tmp/gs-test-phase-XXXXXX", text[64];
    struct gs_args args = {0};
    struct gs_phase phase;
    struct gs_err err = {0};

    (void)state;
    write_file(path, "");
    snprintf(text, sizeof text, "@%s", path);
    assert_int_equal(truncate(path, 0), 0);
    {
        FILE *out = fopen(path, "w");

        assert_non_null(out);
        fputs(text, out);
        fclose(out);
    }
    assert_int_equal(gs_args_push(&args, "%s", text), 0);
    assert_int_equal(gs_phase_read(GS_COMPILER_CC, &args, &phase, &err), -ELOOP);
    assert_non_null(strstr(err.text, path));
    gs_args_deinit(&args);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(read_gcc_lines_that_link),
        cmocka_unit_test(read_gcc_lines_that_stop_before),
        cmocka_unit_test(read_nvcc_lines),
        cmocka_unit_test(read_nvcc_variables_count_too),
        cmocka_unit_test(read_static_is_seen),
        cmocka_unit_test(read_response_file_counts_as_its_words),
        cmocka_unit_test(read_response_file_ends_with_option_takes_next_word),
        cmocka_unit_test(read_response_file_that_names_itself_fails),
    };

    unsetenv("NVCC_PREPEND_FLAGS");
    unsetenv("NVCC_APPEND_FLAGS");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

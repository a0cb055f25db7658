/* SPDX-License-Identifier: Apache-2.0
 *
 * test_paths.c: sizes as people write them, where the daemon's socket is, and packets with
 * descriptors. Changes the environment; one thread.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/packet.h"
#include "common/place.h"
#include "common/size.h"

static void size_parse_good_text_gives_bytes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"1", 1},
        {"4096", 4096},
        {"4096B", 4096},
        {"512 MiB", 512ull << 20},
        {"16GiB", 16ull << 30},
        {"16g", 16ull << 30},
        {"16Gi", 16ull << 30},
        {"1.5GB", 1500000000},
        {"0.5K", 512},
        {"1T", 1ull << 40},
        {"15E", 15ull << 60},
        {"18446744073709551615", UINT64_MAX},
        {"9007199254740993", 9007199254740993ull}, /* 2^53 + 1: no double */
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 77;

        if (gs_size_parse(good[i].text, &bytes) != 0 || bytes != good[i].bytes)
            fail_msg("%s: got %llu", good[i].text, (unsigned long long)bytes);
    }
}

static void size_parse_bad_text_leaves_bytes(void **state)
{
    static const char *const bad[] = {"",      " ",    "G",        "-1",  "+1",  "1X",
                                      "1GiBs", "0x10", "1e3",      "nan", "inf", "1 2",
                                      ".5G",   "1,5G", "16 G i B", NULL,  "1BB", "1KiBB"};
    static const char *const big[] = {"18446744073709551616", "16E", "99999999999999999999T",
                                      "19EB"};
    uint64_t bytes = 77;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (gs_size_parse(bad[i], &bytes) != -EINVAL || bytes != 77)
            fail_msg("%s was taken", bad[i] != NULL ? bad[i] : "NULL");
    for (size_t i = 0; i < sizeof big / sizeof big[0]; i++)
        if (gs_size_parse(big[i], &bytes) != -ERANGE || bytes != 77)
            fail_msg("%s was taken", big[i]);
}

static void size_format_reads_well(void **state)
{
    char text[32], tiny[4];

    (void)state;
    assert_string_equal(gs_size_format(0, text, sizeof text), "0 B");
    assert_string_equal(gs_size_format(1023, text, sizeof text), "1023 B");
    assert_string_equal(gs_size_format(1024, text, sizeof text), "1.0 KiB");
    assert_string_equal(gs_size_format(98ull << 30, text, sizeof text), "98.0 GiB");
    assert_string_equal(gs_size_format(UINT64_MAX, text, sizeof text), "16.0 EiB");
    gs_size_format(98ull << 30, tiny, sizeof tiny);
    assert_int_equal(tiny[3], '\0');
}

static void places_named_one_is_the_only_one(void **state)
{
    struct gs_places places;
    char longer[200];

    (void)state;
    setenv("GPUSHARE_SOCKET", "/somewhere/x.sock", 1);
    assert_int_equal(gs_places_find(&places), 0);
    assert_true(places.named);
    assert_int_equal(places.count, 1);
    assert_string_equal(places.path[0], "/somewhere/x.sock");
    memset(longer, 'a', sizeof longer - 1);
    longer[0] = '/';
    longer[108] = '\0'; /* 108 characters and the NUL do not fit into sockaddr_un */
    setenv("GPUSHARE_SOCKET", longer, 1);
    assert_int_equal(gs_places_find(&places), -ENAMETOOLONG);
    longer[107] = '\0';
    setenv("GPUSHARE_SOCKET", longer, 1);
    assert_int_equal(gs_places_find(&places), 0);
    assert_string_equal(places.path[0], longer);
    setenv("GPUSHARE_SOCKET", "x.sock", 1); /* another place in every folder */
    assert_int_equal(gs_places_find(&places), -EINVAL);
    unsetenv("GPUSHARE_SOCKET");
}

/* Whatever XDG_RUNTIME_DIR is, the first and the last place are the same. */
static void assert_places(const char *runtime, const char *expected)
{
    char usual[64], last[64];
    struct gs_places places;
    struct stat st;

    if (runtime != NULL)
        setenv("XDG_RUNTIME_DIR", runtime, 1);
    else
        unsetenv("XDG_RUNTIME_DIR");
    snprintf(usual, sizeof usual, "/run/user/%u", (unsigned)geteuid());
    if (expected == NULL && stat(usual, &st) == 0) {
        snprintf(usual, sizeof usual, "/run/user/%u/gpushare/lockd.sock", (unsigned)geteuid());
        expected = usual;
    }
    snprintf(last, sizeof last, "/tmp/gpushare-%u/lockd.sock", (unsigned)geteuid());
    assert_int_equal(gs_places_find(&places), 0);
    assert_false(places.named);
    assert_int_equal(places.count, expected != NULL ? 3 : 2);
    assert_string_equal(places.path[0], "/run/gpushare/lockd.sock");
    assert_string_equal(places.path[places.count - 1], last);
    if (expected != NULL)
        assert_string_equal(places.path[1], expected);
}

static void places_runtime_folder_must_be_ours(void **state)
{
    char folder[] = "/tmp/gs_test_common_XXXXXX", path[200], deep[200] = "";

    (void)state;
    setenv("GPUSHARE_SOCKET", "", 1);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/gpushare/lockd.sock", folder);
    assert_places(folder, path);
    assert_int_equal(chmod(folder, 0720), 0);
    assert_places(folder, NULL);
    assert_int_equal(chmod(folder, 0702), 0);
    assert_places(folder, NULL);
    assert_int_equal(chmod(folder, 0700), 0);
    assert_places(NULL, NULL);
    assert_places("", NULL);
    assert_places("relative", NULL);
    assert_places("/nonexistent/folder", NULL);
    assert_places("/dev/null", NULL);
    assert_places(geteuid() == 0 ? "/nonexistent" : "/", NULL); /* root's */
    snprintf(deep, sizeof deep, "%s/", folder); /* a folder whose socket's path is too long */
    memset(deep + strlen(deep), 'a', 70);
    assert_int_equal(mkdir(deep, 0700), 0);
    setenv("XDG_RUNTIME_DIR", deep, 1);
    {
        struct gs_places places;

        assert_int_equal(gs_places_find(&places), 0);
        assert_int_equal(places.count, 2);
    }
    assert_int_equal(rmdir(deep), 0);
    assert_int_equal(rmdir(folder), 0);
    unsetenv("XDG_RUNTIME_DIR");
    unsetenv("GPUSHARE_SOCKET");
}

static void socket_folder_open_to_others_is_refused(void **state)
{
    char folder[] = "/tmp/gs_test_common_XXXXXX", path[128];
    struct stat st;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/inner/lockd.sock", folder);
    assert_int_equal(gs_place_look(path, true, NULL), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_int_equal(chmod(path, 0777), 0);
    path[strlen(path)] = '/'; /* ends at "lockd.sock" again */
    assert_int_equal(gs_place_look(path, true, NULL), -EPERM);
    *strrchr(path, '/') = '\0';
    assert_int_equal(chmod(path, 01777), 0); /* like /tmp: others may write, but not replace */
    path[strlen(path)] = '/';                /* ends at "lockd.sock" again */
    assert_int_equal(gs_place_look(path, true, NULL), 0);
    *strrchr(path, '/') = '\0';
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void socket_folder_missing_parent_or_file_fails(void **state)
{
    (void)state;
    assert_int_equal(gs_place_look("/nonexistent/deep/lockd.sock", true, NULL), -ENOENT);
    assert_int_equal(gs_place_look("/dev/null/lockd.sock", true, NULL), -ENOTDIR);
}

static unsigned count_descriptors(void)
{
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void packet_receive_takes_as_many_descriptors_as_asked_for(void **state)
{
    static const unsigned mosts[] = {0, 1, 15, GS_PACKET_FDS};
    struct gs_descriptors with = {.count = GS_PACKET_FDS}, got;
    const unsigned before = count_descriptors();
    char message[2];
    int pair[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), 0);
    for (unsigned i = 0; i < GS_PACKET_FDS; i++)
        with.fd[i] = pair[0];
    for (unsigned i = 0; i < sizeof mosts / sizeof mosts[0]; i++) {
        assert_int_equal(gs_packet_send(pair[0], "ab", 2, &with), 2);
        assert_int_equal(gs_packet_receive(pair[1], message, sizeof message, mosts[i], &got),
                         2);
        assert_memory_equal(message, "ab", 2);
        assert_int_equal(got.count, mosts[i]);
        assert_int_equal(count_descriptors(), before + 2 + mosts[i]);
        for (unsigned j = 0; j < got.count; j++)
            assert_int_equal(fcntl(got.fd[j], F_GETFD), FD_CLOEXEC);
        gs_descriptors_close(&got);
    }
    assert_int_equal(gs_packet_send(pair[0], NULL, 0, &with), 0); /* with nothing else */
    assert_int_equal(gs_packet_receive(pair[1], message, sizeof message, 1, &got), 0);
    assert_int_equal(got.count, 1);
    gs_descriptors_close(&got);
    assert_int_equal(gs_packet_receive(pair[1], message, sizeof message, 1, &got), -1);
    assert_int_equal(got.count, 0);
    close(pair[0]);
    close(pair[1]);
    assert_int_equal(count_descriptors(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(size_parse_good_text_gives_bytes),
        cmocka_unit_test(size_parse_bad_text_leaves_bytes),
        cmocka_unit_test(size_format_reads_well),
        cmocka_unit_test(places_named_one_is_the_only_one),
        cmocka_unit_test(places_runtime_folder_must_be_ours),
        cmocka_unit_test(socket_folder_open_to_others_is_refused),
        cmocka_unit_test(socket_folder_missing_parent_or_file_fails),
        cmocka_unit_test(packet_receive_takes_as_many_descriptors_as_asked_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

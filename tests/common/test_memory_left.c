/* SPDX-License-Identifier: Apache-2.0
 *
 * test_memory_left.c: what cgroups of both versions leave (common/memory_left.c), with made-up
 * /proc and /sys in a folder of each test's own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>

#include "common/memory_left.h"
#include "tests/common/made_tree.h"

#define MIB (1ull << 20)

static const char v2_mount[] = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 "
                               "cgroup2 rw,nsdelegate\n";
static const char v1_mounts[] =
    "31 20 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw shared:2 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
    "33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory,hugetlb\n"
    "34 31 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static void put_mib(const char *folder, const char *name, uint64_t mib)
{
    char path[4096], text[32];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(text, sizeof text, "%llu\n", (unsigned long long)(mib * MIB));
    made_tree_put(path, text);
}

static void put_v1(const char *folder, uint64_t limit, uint64_t usage)
{
    char path[4096];

    put_mib(folder, "memory.usage_in_bytes", usage);
    put_mib(folder, "memory.limit_in_bytes", limit);
    if (limit != 0)
        return;
    snprintf(path, sizeof path, "%s/memory.limit_in_bytes", folder);
    made_tree_put(path, "9223372036854771712\n");
}

static void put_v2(const char *folder, uint64_t limit, uint64_t usage)
{
    char path[4096];

    put_mib(folder, "memory.current", usage);
    put_mib(folder, "memory.max", limit);
    if (limit != 0)
        return;
    snprintf(path, sizeof path, "%s/memory.max", folder);
    made_tree_put(path, "max\n");
}

/* MiB; UINT64_MAX: no limit */
static uint64_t left_of(pid_t pid)
{
    struct gs_memory_group group;
    uint64_t left;

    errno = 4711;
    gs_memory_group_of(&group, made_tree, pid);
    left = gs_memory_group_left(&group, made_tree);
    assert_int_equal(errno, 4711); /* the library lives in others' processes */
    return left != UINT64_MAX ? left / MIB : left;
}

static void left_nothingThere_noLimit(void **state)
{
    (void)state;
    assert_int_equal(left_of(0), UINT64_MAX);
    assert_int_equal(gs_memory_machine(made_tree), UINT64_MAX);
    made_tree_put("/proc/self/cgroup", "0::/\n");
    assert_int_equal(left_of(0), UINT64_MAX);
    made_tree_put("/proc/self/mountinfo", v2_mount);
    assert_int_equal(left_of(0), UINT64_MAX);
}

static void machine_meminfo_available(void **state)
{
    (void)state;
    made_tree_put("/proc/meminfo",
                  "MemTotal:       4096 kB\nMemFree: 7 kB\nMemAvailable:    2048 kB\n");
    assert_int_equal(gs_memory_machine(made_tree), 2 * MIB);
    made_tree_put("/proc/meminfo", "MemTotal:       4096 kB\n");
    assert_int_equal(gs_memory_machine(made_tree), UINT64_MAX);
    made_tree_put("/proc/meminfo", "MemAvailable:  99999999999999999999 kB\n");
    assert_int_equal(gs_memory_machine(made_tree), UINT64_MAX);
}

static void left_secondVersion_tightestAncestor(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "0::/a/b/c\n");
    made_tree_put("/proc/7/cgroup", "0::/a/free\n");
    made_tree_put("/proc/self/mountinfo", v2_mount);
    put_v2("/sys/fs/cgroup/a", 1000, 300); /* 700 are left */
    put_v2("/sys/fs/cgroup/a/b", 0, 200);
    put_v2("/sys/fs/cgroup/a/b/c", 800, 90); /* 710 */
    put_v2("/sys/fs/cgroup/a/free", 0, 10);
    assert_int_equal(left_of(0), 700);
    assert_int_equal(left_of(7), 700);
    put_v2("/sys/fs/cgroup/a/b", 500, 200);
    assert_int_equal(left_of(0), 300);
    assert_int_equal(left_of(7), 700);
    put_v2("/sys/fs/cgroup/a/b", 500, 600); /* the limit was lowered */
    assert_int_equal(left_of(0), 0);
}

/* A program that reads many files fills its group with them; that is no memory in use. */
static void left_filePages_areNotUsed(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "0::/a\n");
    made_tree_put("/proc/self/mountinfo", v2_mount);
    put_v2("/sys/fs/cgroup/a", 1000, 990);
    made_tree_put(
        "/sys/fs/cgroup/a/memory.stat",
        "anon 10485760\nfile 1027604480\ninactive_anon 5242880\ninactive_file 943718400\n");
    assert_int_equal(left_of(0), 910);
}

/* Beyond memory.high the kernel slows the program down until it hardly moves. */
static void left_high_isALimit(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "0::/a\n");
    made_tree_put("/proc/self/mountinfo", v2_mount);
    put_v2("/sys/fs/cgroup/a", 1000, 100);
    put_mib("/sys/fs/cgroup/a", "memory.high", 600);
    assert_int_equal(left_of(0), 500);
    made_tree_put("/sys/fs/cgroup/a/memory.high", "max\n");
    assert_int_equal(left_of(0), 900);
}

static void left_firstVersion_tightestAncestor(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup",
                  "9:name=systemd:/s\n5:cpu,cpuacct:/c\n4:hugetlb,memory:/a/b\n");
    made_tree_put("/proc/self/mountinfo", v1_mounts);
    put_v1("/sys/fs/cgroup/memory", 0, 5000);
    put_v1("/sys/fs/cgroup/memory/a", 400, 150);
    put_v1("/sys/fs/cgroup/memory/a/b", 0, 100);
    assert_int_equal(left_of(0), 250);
    put_v1("/sys/fs/cgroup/memory/a/b", 300, 100);
    assert_int_equal(left_of(0), 200);
    made_tree_put("/sys/fs/cgroup/memory/a/b/memory.stat",
                  "cache 1\ninactive_file 1\nhierarchical_memory_limit 419430400\n"
                  "total_inactive_file 52428800\n");
    assert_int_equal(left_of(0), 250);
}

/* What is above the container cannot be seen, but its limit is told. */
static void left_limitAboveTheMount_counts(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "4:memory:/\n");
    made_tree_put("/proc/self/mountinfo", v1_mounts);
    put_v1("/sys/fs/cgroup/memory", 0, 100);
    made_tree_put("/sys/fs/cgroup/memory/memory.stat", "hierarchical_memory_limit 314572800\n");
    assert_int_equal(left_of(0), 200);
}

/* A group with use_hierarchy 0 does not count those below it. */
static void left_groupWithoutHierarchy_isNoAncestor(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "4:memory:/a/b\n");
    made_tree_put("/proc/self/mountinfo", v1_mounts);
    put_v1("/sys/fs/cgroup/memory/a", 100, 99);
    put_v1("/sys/fs/cgroup/memory/a/b", 300, 100);
    made_tree_put("/sys/fs/cgroup/memory/a/memory.use_hierarchy", "1\n");
    assert_int_equal(left_of(0), 1);
    made_tree_put("/sys/fs/cgroup/memory/a/memory.use_hierarchy", "0\n");
    assert_int_equal(left_of(0), 200);
}

/* Memory is counted by the version that has the controller, in whatever order they are named.
 */
static void left_bothVersions_theOneWithMemory(void **state)
{
    static const char *const lines[] = {"4:memory:/a\n0::/other\n", "0::/other\n4:memory:/a\n"};

    (void)state;
    made_tree_put("/proc/self/mountinfo", v1_mounts);
    put_v1("/sys/fs/cgroup/memory/a", 300, 100);
    put_v2("/sys/fs/cgroup/unified/other", 10, 1);
    for (int i = 0; i < 2; i++) {
        made_tree_put("/proc/self/cgroup", lines[i]);
        assert_int_equal(left_of(0), 200);
    }
    made_tree_put("/proc/self/cgroup", "4:cpu:/a\n0::/other\n"); /* memory is with version 2 */
    assert_int_equal(left_of(0), 9);
}

/* A container without a cgroup namespace: the path begins above what is mounted. */
static void left_partOfTheHierarchyMounted_isFound(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "4:memory:/docker/12ab/in\n");
    made_tree_put(
        "/proc/self/mountinfo",
        "30 20 0:26 /docker/12 /mnt rw - cgroup cgroup rw,memory\n" /* somebody else's */
        "31 20 0:26 /docker/12ab /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    put_v1("/mnt", 50, 40);
    put_v1("/sys/fs/cgroup/memory", 300, 100);
    put_v1("/sys/fs/cgroup/memory/in", 0, 20);
    assert_int_equal(left_of(0), 200);
    put_v1("/sys/fs/cgroup/memory/in", 60, 20);
    assert_int_equal(left_of(0), 40);
}

/* ... and one whose mount was made outside its namespace, or does not fit the path. */
static void left_pathNotInTheMount_limitOfTheMount(void **state)
{
    static const char *const tops[] = {"/..", "/docker/34"};
    char line[128];

    (void)state;
    made_tree_put("/proc/self/cgroup", "0::/in\n");
    put_v2("/sys/fs/cgroup", 300, 100);
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof line, "31 20 0:26 %s /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
                 tops[i]);
        made_tree_put("/proc/self/mountinfo", line);
        assert_int_equal(left_of(0), 200);
    }
}

/* A process outside our namespace: the limits that can be seen are not its own. */
static void left_groupOutsideTheNamespace_notKnown(void **state)
{
    (void)state;
    made_tree_put("/proc/self/mountinfo", v2_mount);
    put_v2("/sys/fs/cgroup", 300, 100);
    put_v2("/sys/fs/cgroup/..a", 200, 1);
    made_tree_put("/proc/8/cgroup", "0::/../other\n");
    made_tree_put("/proc/9/cgroup", "0::/..\n");
    made_tree_put("/proc/10/cgroup", "0::/..a\n"); /* a name like others */
    assert_int_equal(left_of(8), UINT64_MAX);
    assert_int_equal(left_of(9), UINT64_MAX);
    assert_int_equal(left_of(10), 199);
}

static void left_oddMounts_areRead(void **state)
{
    static char text[40000];
    char *at = text;

    (void)state;
    made_tree_put("/proc/self/cgroup", "0::/a b:c\n");
    at += sprintf(at, "29 20 0:25 / /merged rw - overlay overlay rw,lowerdir=");
    for (int i = 0; i < 3000; i++)
        at += sprintf(at, "/layer%d:", i);
    sprintf(at, "\n30 20 0:26 / /my\\040groups\\134 rw - cgroup2 none rw\n");
    made_tree_put("/proc/self/mountinfo", text);
    put_v2("/my groups\\/a b:c", 300, 100);
    assert_int_equal(left_of(0), 200);
}

static void left_notNumbers_noLimit(void **state)
{
    static const char *const odd[] = {"", "\n", "-1\n", "12x\n", "99999999999999999999\n"};

    (void)state;
    made_tree_put("/proc/self/cgroup", "0::/a\n");
    made_tree_put("/proc/self/mountinfo", v2_mount);
    put_v2("/sys/fs/cgroup/a", 0, 100);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        made_tree_put("/sys/fs/cgroup/a/memory.max", odd[i]);
        assert_int_equal(left_of(0), UINT64_MAX);
    }
}

static void group_oddLines_notKnown(void **state)
{
    static const char *const odd[] = {"", "0:\n", "0::\n", "0::a\n", "1:cpu:/a\n", ":::\n"};
    struct gs_memory_group group;

    (void)state;
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        made_tree_put("/proc/self/cgroup", odd[i]);
        gs_memory_group_of(&group, made_tree, 0);
        assert_false(group.known);
    }
}

static void join_groups_narrowestThatHoldsBoth(void **state)
{
    static const char *const cases[][3] = {
        {"/a/b", "/a/b", "/a/b"},
        {"/a/b", "/a/b/c", "/a/b"},
        {"/a/b/c", "/a/b", "/a/b"},
        {"/a/b/c", "/a/b/d", "/a/b"},
        {"/a/bc", "/a/bd", "/a"},
        {"/a/b", "/a/bc", "/a"},
        {"/a/bc", "/a/b", "/a"},
        {"/a", "/b", ""},
        {"/a", "", ""},
        {"", "/a", ""},
        {"", "", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct gs_memory_group one = {.known = true}, other = {.known = true};

        snprintf(one.path, sizeof one.path, "%s", cases[i][0]);
        snprintf(other.path, sizeof other.path, "%s", cases[i][1]);
        assert_int_equal(gs_memory_group_join(&one, &other),
                         strcmp(cases[i][0], cases[i][2]) != 0);
        assert_string_equal(one.path, cases[i][2]);
    }
}

static void join_unseenGroup_notKnownFromThenOn(void **state)
{
    struct gs_memory_group one = {.known = true, .path = "/a"}, unseen = {.known = false},
                           other = {.known = true, .path = "/a"};

    (void)state;
    assert_true(gs_memory_group_join(&one, &unseen));
    assert_false(gs_memory_group_join(&one, &other));
    assert_false(one.known);
    other.first = true;
    assert_true(gs_memory_group_join(&other, &(struct gs_memory_group){.known = true}));
    assert_false(other.known);
}

static uint64_t device_max(const char *pci)
{
    uint64_t most;

    errno = 4711;
    most = gs_memory_device_max(made_tree, pci);
    assert_int_equal(errno, 4711);
    return most != UINT64_MAX ? most / MIB : most;
}

static void deviceMax_ancestors_theLeastOfTheDevice(void **state)
{
    (void)state;
    assert_int_equal(device_max("0000:c1:00.0"), UINT64_MAX);
    made_tree_put("/proc/self/cgroup", "0::/jobs/one/step\n");
    made_tree_put("/proc/self/mountinfo", v2_mount);
    assert_int_equal(device_max("0000:c1:00.0"), UINT64_MAX); /* the controller is not there */
    made_tree_put("/sys/fs/cgroup/jobs/one/step/dmem.max",
                  "drm/0000:C1:00.0/vram0 max\ndrm/0000:c1:00.0/stolen 4096\n");
    made_tree_put("/sys/fs/cgroup/jobs/one/dmem.max",
                  "drm/0000:03:00.0/vram0 1048576\ndrm/0000:C1:00.0/vram0 2147483648\n");
    made_tree_put("/sys/fs/cgroup/jobs/dmem.max", "drm/0000:c1:00.0/vram0 4294967296\n");
    assert_int_equal(device_max("0000:c1:00.0"), 2048);
    assert_int_equal(device_max("0000:03:00.0"), 1);
    assert_int_equal(device_max("0000:04:00.0"), UINT64_MAX);
    made_tree_put("/sys/fs/cgroup/jobs/one/step/dmem.max",
                  "drm/0000:c1:00.0/vram0 1073741824\nnonsense\n\n");
    assert_int_equal(device_max("0000:c1:00.0"), 1024);
    made_tree_put("/sys/fs/cgroup/jobs/one/step/dmem.max", /* NVIDIA's driver from 615 on */
                  "nvidia/0000:c1:00.0/vidmem 536870912\n");
    assert_int_equal(device_max("0000:c1:00.0"), 512);
}

static void deviceMax_memoryInTheFirstVersion_isFound(void **state)
{
    (void)state;
    made_tree_put("/proc/self/cgroup", "5:memory:/elsewhere\n0::/a\n");
    made_tree_put("/proc/self/mountinfo", v1_mounts);
    made_tree_put("/sys/fs/cgroup/unified/a/dmem.max", "drm/0000:c1:00.0/vram0 1048576\n");
    assert_int_equal(device_max("0000:c1:00.0"), 1);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, made_tree_begin, made_tree_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(left_nothingThere_noLimit),
        CASE(machine_meminfo_available),
        CASE(left_secondVersion_tightestAncestor),
        CASE(left_filePages_areNotUsed),
        CASE(left_high_isALimit),
        CASE(left_firstVersion_tightestAncestor),
        CASE(left_limitAboveTheMount_counts),
        CASE(left_groupWithoutHierarchy_isNoAncestor),
        CASE(left_bothVersions_theOneWithMemory),
        CASE(left_partOfTheHierarchyMounted_isFound),
        CASE(left_pathNotInTheMount_limitOfTheMount),
        CASE(left_groupOutsideTheNamespace_notKnown),
        CASE(left_oddMounts_areRead),
        CASE(left_notNumbers_noLimit),
        CASE(group_oddLines_notKnown),
        CASE(join_groups_narrowestThatHoldsBoth),
        CASE(join_unseenGroup_notKnownFromThenOn),
        CASE(deviceMax_ancestors_theLeastOfTheDevice),
        CASE(deviceMax_memoryInTheFirstVersion_isFound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_identity.c: who the peer of a socket is (lockd/programs).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockd/programs/identity.h"

#define ID    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "fedcba9876543210fedcba9876543210fedcba9876543210fedcba9876543210"

static void container_in_known_forms_is_its_id(void **state)
{
    static const struct {
        const char *line, *name;
    } cases[] = {
        {"0::/system.slice/docker-" ID ".scope\n", ID},
        {"12:memory:/docker/" ID "\n", ID},
        {"0::/machine.slice/libpod-" ID ".scope/container\n", ID},
        {"0::/kubepods.slice/kubepods-pod12.slice/cri-containerd-" ID ".scope\n", ID},
        {"0::/kubepods/besteffort/pod1/crio-" ID "\n", ID},
        {"0::/docker/" ID "/docker/" OTHER "\n", ID}, /* whatever its root adds below */
        {"0::/machine.slice/systemd-nspawn@web.service/payload\n", "web"},
        {"0::/lxc.payload.web/init.scope\n", "web"},
        {"0::/machine.slice/machine-web.scope\n", "web"},
        {"0::/user.slice/user-1000.slice/session-2.scope\n", NULL},
        {"0::/\n", NULL},
        {"", NULL},
        {"0::/a" ID "0\n", NULL}, /* more digits than an id has */
        {"0::/x-" ID, ID},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[LOCKD_CONTAINER_SIZE] = "";

        assert_int_equal(lockd_identity_container(cases[i].line, name), cases[i].name != NULL);
        assert_string_equal(name, cases[i].name != NULL ? cases[i].name : "");
    }
}

#define POD "0a1b2c3d-4e5f-6789-abcd-ef0123456789"

static void pod_in_known_forms_is_its_uid(void **state)
{
    static const struct {
        const char *line, *uid;
    } cases[] = {
        {"0::/kubepods/besteffort/pod" POD "/" ID "\n", POD},
        {"0::/kubepods.slice/kubepods-pod0a1b2c3d_4e5f_6789_abcd_ef0123456789.slice/"
         "cri-containerd-" ID ".scope\n",
         POD},
        {"0::/kubepods.slice/kubepods-burstable.slice/"
         "kubepods-burstable-pod0a1b2c3d_4e5f_6789_abcd_ef0123456789.slice/crio-" ID ".scope\n",
         POD},
        {"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
         "kubelet-kubepods-besteffort-pod0a1b2c3d_4e5f_6789_abcd_ef0123456789.slice/"
         "cri-containerd-" ID ".scope\n",
         POD},
        {"12:memory:/kubepods/burstable/pod0123456789abcdef0123456789abcdef/" ID "\n",
         "0123456789abcdef0123456789abcdef"},
        {"0::/docker/" OTHER "/kubepods/pod" POD "/" ID "\n",
         POD},                                        /* kind: Kubernetes in Docker */
        {"0::/user.slice/pod" POD "/" ID "\n", NULL}, /* no kubelet made it */
        {"0::/kubepods/pod12/" ID "\n", NULL},
        {"0::/kubepods/podder/" ID "\n", NULL},
        {"0::/kubepods/pod" POD "0123456789/" ID "\n", NULL},
        {"0::/kubepods\n", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char uid[LOCKD_POD_SIZE] = "";

        assert_int_equal(lockd_identity_pod(cases[i].line, uid), cases[i].uid != NULL);
        if (cases[i].uid != NULL)
            assert_string_equal(uid, cases[i].uid);
    }
}

static void container_with_long_name_is_cut(void **state)
{
    char line[512] = "0::/lxc.payload.", name[LOCKD_CONTAINER_SIZE];

    (void)state;
    memset(line + strlen(line), 'x', 300);
    assert_true(lockd_identity_container(line, name));
    assert_int_equal(strlen(name), LOCKD_CONTAINER_SIZE - 1);
}

static void units_are_the_path_of_systemds_control_group(void **state)
{
    static const struct {
        const char *line, *path;
    } cases[] = {
        {"0::/user.slice/user-1.slice/user@1.service/app.slice/a.service\n",
         "/user.slice/user-1.slice/user@1.service/app.slice/a.service"},
        {"1:name=systemd:/system.slice/a.service", "/system.slice/a.service"},
        {"0::/\n", "/"},
        {"12:memory:/a.service\n", NULL},
        {"", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[LOCKD_UNITS_SIZE] = "";

        assert_int_equal(lockd_identity_units(cases[i].line, path), cases[i].path != NULL);
        assert_string_equal(path, cases[i].path != NULL ? cases[i].path : "");
    }
}

/* A pid namespace of a user's job, without an id: the program counts for its user. */
static void groups_of_users_are_those_of_systemd_and_slurm(void **state)
{
    static const struct {
        const char *path;
        bool users;
    } cases[] = {
        {"/user.slice/user-1000.slice/session-2.scope", true},
        {"/system.slice/slurmstepd.scope/job_12/step_0/user/task_0", true},
        {"/slurm/uid_1000/job_12/step_0", true},
        {"/system.slice/docker-a.scope/user.slice/user-1000.slice", false},
        {"/docker/a/slurm/uid_1000", false},
        {"/system.slice/slurmstepd.scope.d/job_12", false},
        {"/", false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(lockd_identity_is_of_users(cases[i].path), cases[i].users);
}

static void units_of_a_long_path_are_the_first_ones(void **state)
{
    static const char part[] = "/thirty-two-bytes-are-in-this.slice";
    char line[1024] = "0::/first.slice", path[LOCKD_UNITS_SIZE];
    size_t at = strlen(line);

    (void)state;
    for (int i = 0; i < 10; i++, at += strlen(part))
        memcpy(line + at, part, sizeof part);
    memcpy(line + at, "/last.service\n", sizeof "/last.service\n");
    assert_true(lockd_identity_units(line, path));
    assert_memory_equal(path, "/first.slice/thirty", 19);
    assert_string_equal(strrchr(path, '/'), part);
    memset(line + 4, 'x', 300); /* one part alone is too long */
    line[304] = '\0';
    assert_true(lockd_identity_units(line, path));
    assert_string_equal(path, "");
}

static void read_peer_is_this_process(void **state)
{
    struct lockd_identity own, peer;
    int ends[2];

    (void)state;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    lockd_identity_read_own(&own);
    assert_int_equal(lockd_identity_read(ends[0], &peer), 0);
    assert_int_equal(peer.uid, geteuid());
    assert_int_equal(peer.pid, getpid());
    assert_true(peer.started != 0 && peer.depth != 0);
    assert_true(lockd_identity_same(&own, &peer));
    assert_false(lockd_identity_is_contained(&peer, &own));
    close(ends[0]);
    close(ends[1]);
    assert_true(lockd_identity_read(ends[0], &peer) < 0); /* no socket */
}

static void contained_is_known_by_each_sign(void **state)
{
    const struct lockd_identity here = {.uid = 1, .pid = 2, .depth = 1};
    struct lockd_identity other = {.uid = 0, .pid = 3, .depth = 1};

    (void)state;
    assert_false(lockd_identity_is_contained(&other, &here));
    other.depth = 2;
    assert_true(lockd_identity_is_contained(&other, &here));
    other = (struct lockd_identity){.uid = 0, .pid = 3, .depth = 1, .container = ID};
    assert_true(lockd_identity_is_contained(&other, &here));
    assert_false(lockd_identity_is_contained(&other, &other));
    other = (struct lockd_identity){.uid = 0, .pid = 3, .depth = 1, .own_root = true};
    assert_true(lockd_identity_is_contained(&other, &here));
    other = (struct lockd_identity){.uid = 0}; /* nothing is known of it */
    assert_true(lockd_identity_is_contained(&other, &here));
    assert_false(lockd_identity_same_container(&other, &other));
}

static void account_is_of_the_container_whatever_the_uid(void **state)
{
    const struct lockd_identity here = {.uid = 1, .pid = 2, .depth = 1};
    struct lockd_identity pod = {.uid = 0, .pid = 3, .depth = 2, .container = ID};
    uid_t owner;

    (void)state;
    assert_string_equal(lockd_identity_account(&pod, &here, &owner), ID);
    pod.container[0] = '\0';
    assert_string_equal(lockd_identity_account(&pod, &here, &owner), LOCKD_UNNAMED);
    pod.depth = 0; /* nothing is known */
    assert_string_equal(lockd_identity_account(&pod, &here, &owner), "");
    assert_int_equal(owner, 0);
}

static void account_of_what_a_user_made_is_the_users(void **state)
{
    const struct lockd_identity here = {.uid = 1, .pid = 2, .depth = 1};
    struct lockd_identity peer = {.uid = 4000000001u, .pid = 3, .depth = 2, .own_root = true};
    uid_t owner;

    (void)state;
    peer.ns_owner = 4000000000u; /* no user, and in no range of uids */
    assert_string_equal(lockd_identity_account(&peer, &here, &owner), "");
    assert_int_equal(owner, 4000000000u);
    memcpy(peer.container, ID, sizeof ID);
    assert_string_equal(lockd_identity_account(&peer, &here, &owner), ID);
    peer.by_user = true;
    assert_string_equal(lockd_identity_account(&peer, &here, &owner), "");
    assert_int_equal(owner, 4000000000u);
}

static void same_container_if_contained_needs_certainty(void **state)
{
    const struct lockd_identity one = {.uid = 1, .pid = 2, .depth = 2, .contained = true};
    struct lockd_identity a = one, b = one;

    (void)state;
    assert_false(lockd_identity_same_container(&a, &b)); /* two containers without an id */
    a.user_ns = b.user_ns = 7;
    assert_false(lockd_identity_same_container(&a, &b));
    a.pid_ns = b.pid_ns = 8;
    assert_true(lockd_identity_same_container(&a, &b));
    a = b = one;
    memcpy(a.container, ID, sizeof ID);
    memcpy(b.container, ID, sizeof ID);
    assert_false(lockd_identity_same_container(&a, &b));
    strcpy(a.group, "/docker/" ID);
    strcpy(b.group, "/docker/" ID);
    assert_true(lockd_identity_same_container(&a, &b));
    strcpy(b.group, "/docker/" ID "/below");
    assert_false(lockd_identity_same_container(&a, &b));
    b = a;
    b.contained = false;
    assert_false(lockd_identity_same_container(&a, &b));
}

static void same_container_needs_all_signs(void **state)
{
    const struct lockd_identity one = {
        .uid = 1, .pid = 2, .depth = 2, .user_ns = 7, .pid_ns = 8, .container = ID};
    struct lockd_identity other = one;

    (void)state;
    other.pid = 3;
    assert_true(lockd_identity_same(&one, &other));
    other.uid = 4;
    assert_true(lockd_identity_same_container(&one, &other));
    assert_false(lockd_identity_same(&one, &other));
    other.pid_ns = 9;
    assert_false(lockd_identity_same_container(&one, &other));
    other.pid_ns = 0; /* not known: no difference */
    assert_true(lockd_identity_same_container(&one, &other));
    memcpy(other.container, OTHER, sizeof OTHER);
    assert_false(lockd_identity_same_container(&one, &other));
}

/* A child that waits until its end of the pipe is closed. */
static pid_t start_child(int *hold, struct lockd_identity *identity)
{
    int pipe_ends[2];
    pid_t child;
    char byte;

    assert_int_equal(pipe(pipe_ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        close(pipe_ends[1]);
        _exit(read(pipe_ends[0], &byte, 1) < 0);
    }
    close(pipe_ends[0]);
    *hold = pipe_ends[1];
    *identity = (struct lockd_identity){.uid = geteuid(), .pid = child};
    return child;
}

static uint64_t start_of(pid_t pid)
{
    char path[64], line[1024];
    const char *at;
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    fclose(file);
    at = strrchr(line, ')');
    for (int field = 2; field < 22; field++)
        at = strchr(at + 1, ' ');
    return strtoull(at, NULL, 10);
}

static void pidfd_is_of_that_process_only(void **state)
{
    struct lockd_identity identity;
    int hold, fd;
    const pid_t child = start_child(&hold, &identity);

    (void)state;
    assert_int_equal(lockd_identity_pidfd(&identity), -ESRCH); /* its start is not known */
    identity.started = start_of(child);
    fd = lockd_identity_pidfd(&identity);
    assert_true(fd >= 0);
    close(fd);
    identity.started++; /* as if another had got its number */
    assert_int_equal(lockd_identity_pidfd(&identity), -ESRCH);
    identity.started--;
    close(hold);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(lockd_identity_pidfd(&identity), -ESRCH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(container_in_known_forms_is_its_id),
        cmocka_unit_test(pod_in_known_forms_is_its_uid),
        cmocka_unit_test(container_with_long_name_is_cut),
        cmocka_unit_test(units_are_the_path_of_systemds_control_group),
        cmocka_unit_test(groups_of_users_are_those_of_systemd_and_slurm),
        cmocka_unit_test(units_of_a_long_path_are_the_first_ones),
        cmocka_unit_test(read_peer_is_this_process),
        cmocka_unit_test(contained_is_known_by_each_sign),
        cmocka_unit_test(account_is_of_the_container_whatever_the_uid),
        cmocka_unit_test(account_of_what_a_user_made_is_the_users),
        cmocka_unit_test(same_container_if_contained_needs_certainty),
        cmocka_unit_test(same_container_needs_all_signs),
        cmocka_unit_test(pidfd_is_of_that_process_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.c: reads the credentials of a socket's peer and the part of /proc about it that every
 * user may read: its control group, its numbers in nested pid namespaces, and the map of its user
 * namespace. The inodes of namespaces can be read for processes of the same user, or by root.
 *
 * A pidfd holds the process while it is read, so that nothing is read of another process that was
 * given its number. No state.
 */
#include "lockd/programs/identity.h"
#include "common/fd.h"
#include "lockd/base/halt.h"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Reads subuid(5). Names are looked up in the file passwd(5) alone: a directory service may take
 * long to answer, and the daemon must not wait. No state. */

static bool read_number(const char *text, unsigned long *number)
{
    char *end;

    *number = strtoul(text, &end, 10);
    return end != text && (*end == '\0' || *end == '\n');
}

/* Whether a line "OWNER:FIRST:COUNT" has the uid; cuts the line into its three parts. */
static bool has_uid(char *line, uid_t uid, unsigned long *first)
{
    char *from = strchr(line, ':'), *many = from != NULL ? strchr(from + 1, ':') : NULL;
    unsigned long count;

    if (many == NULL)
        return false;
    *from++ = *many++ = '\0';
    return read_number(from, first) && read_number(many, &count) && uid >= *first &&
           uid - *first < count;
}

/* A line of passwd(5): "NAME:PASSWORD:UID:...". */
static uid_t find_user(const char *name, const char *passwd, uid_t otherwise)
{
    FILE *file = fopen(passwd, "re");
    char *line = NULL;
    size_t size = 0;
    uid_t uid = otherwise;

    while (file != NULL && getline(&line, &size, file) > 0) {
        const size_t length = strlen(name);
        const char *password = line + length, *after;
        unsigned long number;

        if (strncmp(line, name, length) != 0 || *password != ':')
            continue;
        after = strchr(password + 1, ':');
        if (after == NULL)
            continue;
        number = strtoul(after + 1, NULL, 10);
        uid = after[1] >= '0' && after[1] <= '9' ? (uid_t)number : otherwise;
        break;
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return uid;
}

uid_t lockd_owner_of(uid_t uid, const char *subuid, const char *passwd)
{
    FILE *file = fopen(subuid, "re");
    char *line = NULL;
    size_t size = 0;
    unsigned long first, number;
    uid_t owner = uid;

    while (file != NULL && getline(&line, &size, file) > 0)
        if (has_uid(line, uid, &first)) {
            owner = read_number(line, &number) ? (uid_t)number
                                               : find_user(line, passwd, (uid_t)first);
            break;
        }
    free(line);
    if (file != NULL)
        fclose(file);
    return owner;
}

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define ID_DIGITS 64 /* of a container's id: Docker, Podman, containerd, CRI-O */

/* --- the container --- */

/* "lxc.payload.NAME", "machine-NAME.scope", "systemd-nspawn@NAME.service": a prefix, a name. */
static bool take_named(const char *part, size_t length, char *name)
{
    static const char *const prefixes[] = {"lxc.payload.", "machine-", "systemd-nspawn@"};

    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        const size_t skip = strlen(prefixes[i]);

        if (length <= skip || strncmp(part, prefixes[i], skip) != 0)
            continue;
        length -= skip;
        if (length > 6 && strncmp(part + skip + length - 6, ".scope", 6) == 0)
            length -= 6;
        else if (length > 8 && strncmp(part + skip + length - 8, ".service", 8) == 0)
            length -= 8;
        if (length >= LOCKD_CONTAINER_SIZE)
            length = LOCKD_CONTAINER_SIZE - 1;
        memcpy(name, part + skip, length);
        name[length] = '\0';
        return true;
    }
    return false;
}

/* One part of the path, such as "docker-<id>.scope" or the id alone. */
static bool take_part(const char *part, size_t length, char *name)
{
    for (size_t i = 0; i + ID_DIGITS <= length; i++) {
        const size_t digits = strspn(part + i, "0123456789abcdef");

        if (digits == ID_DIGITS) {
            memcpy(name, part + i, ID_DIGITS);
            name[ID_DIGITS] = '\0';
            return true;
        }
        i += digits;
    }
    return take_named(part, length, name);
}

bool lockd_identity_container(const char *line, char *name)
{
    const char *part = strchr(line, '/');

    while (part != NULL) {
        const size_t length = strcspn(++part, "/\n");

        if (take_part(part, length, name))
            return true;
        part = part[length] == '/' ? part + length : NULL;
    }
    return false;
}

/* --- the units --- */

bool lockd_identity_units(const char *line, char *path)
{
    const bool systemd =
        strncmp(line, "0::/", 4) == 0 || strstr(line, ":name=systemd:/") != NULL;
    const char *from = strchr(line, '/');
    size_t length;

    if (!systemd)
        return false;
    length = strcspn(from, "\n");
    while (length >= LOCKD_UNITS_SIZE)
        do
            length--;
        while (from[length] != '/');
    memcpy(path, from, length);
    path[length] = '\0';
    return true;
}

/* --- the pod --- */

/* Kubelet names the pod's control group pod<UID>, or with systemd
 * kubepods-<class>-pod<UID>.slice, where '_' stands for each '-' of the UID. A pod that comes
 * from a file on the node has 32 digits without any. */
static bool take_pod(const char *part, size_t length, char *uid)
{
    const char *at = part, *end = part + length;
    size_t digits, signs = 0;

    if (length > 6 && strncmp(end - 6, ".slice", 6) == 0) {
        end -= 6;
        for (const char *dash = part; dash < end; dash++)
            at = *dash == '-' ? dash + 1 : at;
    }
    if (end - at < 3 || strncmp(at, "pod", 3) != 0)
        return false;
    at += 3;
    digits = strspn(at, "0123456789abcdef-_");
    if (at + digits != end || digits < 32 || digits >= LOCKD_POD_SIZE)
        return false;
    for (size_t i = 0; i < digits; i++) {
        uid[i] = at[i];
        if (at[i] == '_')
            uid[i] = '-';
        signs += uid[i] == '-';
    }
    uid[digits] = '\0';
    return (digits == 32 && signs == 0) || (digits == 36 && signs == 4);
}

bool lockd_identity_pod(const char *line, char *uid)
{
    const char *part = strstr(line, "kubepods") != NULL ? strchr(line, '/') : NULL;

    for (; part != NULL; part = strchr(part, '/')) {
        const size_t length = strcspn(++part, "/\n");

        if (take_pod(part, length, uid))
            return true;
    }
    uid[0] = '\0';
    return false;
}

/* --- /proc --- */

/* systemd makes the first of these at the top, and Slurm the others: what is in them is for users,
 * who are not root in a pid namespace of a job. */
bool lockd_identity_is_of_users(const char *path)
{
    static const char *const groups[] = {"/user.slice/", "/system.slice/slurmstepd.scope/",
                                         "/system.slice/slurmd.service/", "/slurm/"};

    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strncmp(path, groups[i], strlen(groups[i])) == 0)
            return true;
    return false;
}

static void read_container(struct lockd_identity *identity, const char *line)
{
    const char *path = strchr(line, '/');
    const size_t length = path != NULL ? strcspn(path, "\n") : 0;

    if (path == NULL || !lockd_identity_container(line, identity->container))
        return;
    lockd_identity_pod(line, identity->pod);
    identity->by_user |= lockd_identity_is_of_users(path);
    if (path[length] == '\n' && length < sizeof identity->group)
        memcpy(identity->group, path, length);
}

static void read_control_group(struct lockd_identity *identity)
{
    FILE *file = lockd_process_open(identity->pid, "cgroup");
    char *line =
        NULL; /* a path may have any length, and a part of it looks like another path */
    size_t size = 0;

    while (file != NULL && getline(&line, &size, file) > 0) {
        if (identity->container[0] == '\0')
            read_container(identity, line);
        if (identity->units[0] == '\0')
            lockd_identity_units(line, identity->units);
    }
    if (identity->container[0] == '\0')
        identity->by_user |= lockd_identity_is_of_users(identity->units);
    free(line);
    if (file != NULL)
        fclose(file);
}

static void read_depth(struct lockd_identity *identity)
{
    FILE *file = lockd_process_open(identity->pid, "status");
    char line[512];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        for (const char *at = line; (at = strchr(at, '\t')) != NULL; at++) {
            identity->depth++;
            identity->own_pid = (pid_t)strtol(at, NULL, 10);
        }
        break;
    }
    if (file != NULL)
        fclose(file);
}

/* A line of the map: the first user inside, the same user outside, how many. */
static void read_user_map(struct lockd_identity *identity)
{
    FILE *file = lockd_process_open(identity->pid, "uid_map");
    char line[128];

    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        char *end;
        const unsigned long inside = strtoul(line, &end, 10), outside = strtoul(end, &end, 10),
                            count = strtoul(end, NULL, 10);

        if (inside != 0 || (outside == 0 && count == UINT32_MAX))
            continue;
        identity->own_root = true;
        identity->ns_owner = (uid_t)outside;
    }
    if (file != NULL)
        fclose(file);
}

static uint64_t read_namespace(pid_t pid, const char *name)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof path, "/proc/%d/ns/%s", (int)pid, name);
    return stat(path, &st) == 0 ? st.st_ino : 0;
}

/* The kernel knows the owner; the map, which is read before, may be of other uids of its. */
static void read_owner(struct lockd_identity *identity)
{
    char path[64];
    uid_t owner;
    int fd;

    if (!identity->own_root)
        return;
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)identity->pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (ioctl(fd, NS_GET_OWNER_UID, &owner) == 0) {
        identity->ns_owner = owner;
        identity->by_user |= owner != 0;
    }
    close(fd);
}

static void read_process(struct lockd_identity *identity)
{
    identity->started = lockd_process_started(identity->pid);
    identity->user_ns = read_namespace(identity->pid, "user");
    identity->pid_ns = read_namespace(identity->pid, "pid");
    read_depth(identity);
    read_user_map(identity);
    read_control_group(identity);
    read_owner(identity);
}

/* --- the process --- */

static int open_pidfd(pid_t pid)
{
    const int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    return fd >= 0 ? fd : -errno;
}

static bool has_ended(int pidfd)
{
    struct pollfd look = {.fd = pidfd, .events = POLLIN};

    return poll(&look, 1, 0) == 1;
}

int lockd_identity_read(int fd, struct lockd_identity *identity)
{
    struct ucred who;
    socklen_t size = sizeof who;
    int pidfd = -1;

    *identity = (struct lockd_identity){.uid = (uid_t)-1};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0)
        return -errno;
    identity->uid = who.uid;
    if (who.pid <= 0)
        return 0;
    size = sizeof pidfd;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0)
        pidfd = open_pidfd(who.pid);
    if (pidfd == -ESRCH)
        return 0;
    identity->pid = who.pid;
    read_process(identity);
    if (pidfd >= 0 && has_ended(pidfd)) /* the lines may be of another process */
        *identity = (struct lockd_identity){.uid = who.uid};
    if (pidfd >= 0)
        close(pidfd);
    return 0;
}

void lockd_identity_read_own(struct lockd_identity *identity)
{
    *identity = (struct lockd_identity){.uid = geteuid(), .pid = getpid()};
    read_process(identity);
}

int lockd_identity_pidfd(const struct lockd_identity *identity)
{
    int fd;

    if (identity->pid <= 0 || identity->started == 0)
        return -ESRCH;
    fd = open_pidfd(identity->pid);
    if (fd < 0)
        return fd;
    if (lockd_process_started(identity->pid) == identity->started && !has_ended(fd))
        return fd;
    close(fd);
    return -ESRCH;
}

bool lockd_identity_is_running(const struct lockd_identity *identity)
{
    const int pidfd = lockd_identity_pidfd(identity);

    if (pidfd >= 0)
        close(pidfd);
    return pidfd >= 0;
}

/* --- comparing --- */

bool lockd_identity_is_contained(const struct lockd_identity *identity,
                                 const struct lockd_identity *here)
{
    /* a process about which nothing is known (depth 0) counts as contained */
    if (identity->depth == 0 || identity->depth > here->depth)
        return true;
    if (identity->container[0] != '\0' && strcmp(identity->container, here->container) != 0)
        return true;
    return identity->own_root && !here->own_root;
}

const char *lockd_identity_account(const struct lockd_identity *identity,
                                   const struct lockd_identity *here, uid_t *owner)
{
    const bool of_root = !identity->by_user && lockd_identity_is_contained(identity, here);
    const bool own_root = identity->own_root && !here->own_root;

    *owner = lockd_owner_of(own_root ? identity->ns_owner : identity->uid, "/etc/subuid",
                            "/etc/passwd");
    if (of_root && identity->container[0] != '\0')
        return identity->container;
    return of_root && !own_root && identity->depth != 0 ? LOCKD_UNNAMED : "";
}

/* A namespace that is not known counts as the same namespace. */
static bool may_be_same(uint64_t one, uint64_t other)
{
    return one == other || one == 0 || other == 0;
}

/* Whether two contained processes that may be in the same container are certain to be. */
static bool are_certain(const struct lockd_identity *one, const struct lockd_identity *other)
{
    if (one->user_ns != 0 && one->pid_ns != 0 && other->user_ns != 0 && other->pid_ns != 0)
        return true;
    return one->group[0] != '\0' && strcmp(one->group, other->group) == 0;
}

bool lockd_identity_same_container(const struct lockd_identity *one,
                                   const struct lockd_identity *other)
{
    if (one->pid == 0 || other->pid == 0 || one->contained != other->contained)
        return false;
    return strcmp(one->container, other->container) == 0 && one->depth == other->depth &&
           one->own_root == other->own_root && may_be_same(one->user_ns, other->user_ns) &&
           may_be_same(one->pid_ns, other->pid_ns) &&
           (!one->contained || are_certain(one, other));
}

bool lockd_identity_same(const struct lockd_identity *one, const struct lockd_identity *other)
{
    return one->uid == other->uid && lockd_identity_same_container(one, other);
}

/* Keeps what the daemon knows about the process at the other end of a connection. State:
 * struct lockd_peer. One thread. */

void lockd_peer_init(struct lockd_peer *peer, const struct lockd_identity *identity,
                     const struct lockd_identity *here, uid_t uid, pid_t pid)
{
    *peer = (struct lockd_peer){
        .identity = *identity,
        .uid = uid,
        .pid = pid,
    };
    peer->identity.contained = lockd_identity_is_contained(identity, here);
}

void lockd_peer_name(struct lockd_peer *peer, pid_t said)
{
    if (peer->pid > 0)
        return;
    peer->pid = said;
    peer->foreign = true;
}

bool lockd_peer_is_beside(const struct lockd_peer *peer)
{
    /* a process of another pid namespace has more numbers than the number that it has here */
    return !peer->foreign && peer->pid > 0 && !peer->identity.contained &&
           peer->identity.depth == 1;
}

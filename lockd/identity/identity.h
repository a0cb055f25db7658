/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.h: the process at the other end of a connection: its user, process id, user namespace
 * and container, as the kernel describes them when the connection is made. Nothing of it is the
 * peer's own claim.
 */
#ifndef GS_LOCKD_IDENTITY_IDENTITY_H
#define GS_LOCKD_IDENTITY_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKD_CONTAINER_SIZE 80 /* 64 hexadecimal digits, or a name */
#define LOCKD_UNITS_SIZE     224
#define LOCKD_POD_SIZE       40 /* a UUID, or 32 hexadecimal digits */

struct lockd_identity {
    uid_t uid;
    pid_t pid;                /* 0: in a pid namespace that this process cannot see into */
    uint64_t started;         /* of the process, in clock ticks since boot; 0: not known */
    uint64_t user_ns, pid_ns; /* inodes; 0: this process may not ask */
    unsigned depth;           /* pid namespaces in which the process has a number */
    pid_t own_pid;            /* its number in the innermost of them */
    bool own_root;            /* its user namespace has a root that is not the machine's */
    /* Its container belongs to a user's session, which can make any number of them. */
    bool by_user;
    char container[LOCKD_CONTAINER_SIZE]; /* its id, from the control group; "": none */
    /* The path of its control group, at least its first parts, which systemd names after units;
     * "": not known. */
    char units[LOCKD_UNITS_SIZE];
    /* The UID of its Kubernetes pod, from the control group; "": none. */
    char pod[LOCKD_POD_SIZE];
};

/* Reads the identity of the peer of a connected AF_UNIX socket. A part that cannot be read is 0
 * or "". Opens descriptors for a moment, keeps none. 0; -errno: there are no credentials. */
int lockd_identity_read(int fd, struct lockd_identity *identity);
/* The same for this process. */
void lockd_identity_read_own(struct lockd_identity *identity);

/* Whether the peer lives in a container, or a user namespace with a root of its own, in which
 * `here` (the daemon) does not. Such a peer steers the programs of its container at most. */
bool lockd_identity_is_contained(const struct lockd_identity *identity,
                                 const struct lockd_identity *here);
/* The container that has an account of its own, or "": the peer counts as its user. Containers
 * that users start in their sessions have none. */
const char *lockd_identity_account(const struct lockd_identity *identity,
                                   const struct lockd_identity *here);
/* Whether both live in the same container and user namespace, or neither in any. */
bool lockd_identity_same_container(const struct lockd_identity *one,
                                   const struct lockd_identity *other);
/* Whether both belong to the same user in the same container, and so count as one for others. */
bool lockd_identity_same(const struct lockd_identity *one, const struct lockd_identity *other);

/* A pidfd of exactly that process, for signals and checks, to be closed by the caller. -ESRCH:
 * it has ended, even if another process has its number now; -ENOSYS, -EMFILE and others. */
int lockd_identity_pidfd(const struct lockd_identity *identity);
/* Whether exactly that process is still running. */
bool lockd_identity_is_running(const struct lockd_identity *identity);

/* The container that a line of /proc/PID/cgroup names, into name (LOCKD_CONTAINER_SIZE bytes);
 * false: none. */
bool lockd_identity_container(const char *line, char *name);
/* The control group that the line names, if that hierarchy is systemd's, into path
 * (LOCKD_UNITS_SIZE bytes; as many whole parts from its beginning as fit); false: it is not. */
bool lockd_identity_units(const char *line, char *path);
/* The UID of the Kubernetes pod that such a line names, into uid (LOCKD_POD_SIZE bytes), with
 * '-' between its parts. */
bool lockd_identity_pod(const char *line, char *uid);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.h: the process at the other end of a connection: its user, process id, user namespace
 * and container, as the kernel describes them when the connection is made. Nothing of it is the
 * peer's own claim.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define LOCKD_CONTAINER_SIZE 80 /* 64 hexadecimal digits, or a name */
#define LOCKD_UNITS_SIZE     224
#define LOCKD_GROUP_SIZE     384 /* a container in a pod needs about 230 */
#define LOCKD_POD_SIZE       40  /* a UUID, or 32 hexadecimal digits */

/* The account of containers that have no id. */
#define LOCKD_UNNAMED "unnamed"

struct lockd_identity {
    uid_t uid;
    pid_t pid;                /* 0: in a pid namespace that this process cannot see into */
    uint64_t started;         /* of the process, in clock ticks since boot; 0: not known */
    uint64_t user_ns, pid_ns; /* inodes; 0: this process may not ask */
    unsigned depth;           /* pid namespaces in which the process has a number */
    pid_t own_pid;            /* its number in the innermost of them */
    bool own_root;            /* its user namespace has a root that is not the machine's */
    /* If it has: the owner of that namespace, or if this process may not ask, its root outside. */
    uid_t ns_owner;
    /* An ordinary user made its container, and can make any number of them. */
    bool by_user;
    bool contained; /* set by lockd_peer_init() */
    /* The id of the outermost container, from the control group; "": none. Root of a container may
     * make control groups in its own with any name. */
    char container[LOCKD_CONTAINER_SIZE];
    /* The path of the control group that names the container; "": none, or too long. */
    char group[LOCKD_GROUP_SIZE];
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
/* In whose account the peer counts: returns the name of a container, or "" for the user `owner`.
 * A container that root made has an account of its own, whatever the uids in it; those without an
 * id share the account LOCKD_UNNAMED. Everything else counts for the user who owns the user
 * namespace, or to whom the system gave the uid (lockd_owner_of()). */
const char *lockd_identity_account(const struct lockd_identity *identity,
                                   const struct lockd_identity *here, uid_t *owner);
/* Whether both live in the same container and user namespace, or neither in any. False if they
 * are contained and the kernel does not tell enough: neither their namespaces, nor the control
 * group of a container with an id. */
bool lockd_identity_same_container(const struct lockd_identity *one,
                                   const struct lockd_identity *other);
/* Whether both belong to the same user in the same container, and so count as one for others. */
bool lockd_identity_same(const struct lockd_identity *one, const struct lockd_identity *other);

/* A pidfd of exactly that process, for signals and checks, to be closed by the caller. -ESRCH:
 * it has ended, even if another process has its number now; -ENOSYS, -EMFILE and others. */
int lockd_identity_pidfd(const struct lockd_identity *identity);
/* Whether exactly that process is still running. */
bool lockd_identity_is_running(const struct lockd_identity *identity);

/* The outermost container that a line of /proc/PID/cgroup names, into name (LOCKD_CONTAINER_SIZE
 * bytes); false: none. */
bool lockd_identity_container(const char *line, char *name);
/* The control group that the line names, if that hierarchy is systemd's, into path
 * (LOCKD_UNITS_SIZE bytes; as many whole parts from its beginning as fit); false: it is not. */
bool lockd_identity_units(const char *line, char *path);
/* Whether the control group is one that systemd or Slurm makes for users' processes. */
bool lockd_identity_is_of_users(const char *path);
/* The UID of the Kubernetes pod that such a line names, into uid (LOCKD_POD_SIZE bytes), with
 * '-' between its parts. */
bool lockd_identity_pod(const char *line, char *uid);

/* The process at the other end of a connection: its identity, and what follows from it for
 * the daemon. */

struct lockd_peer {
    struct lockd_identity identity;
    uid_t uid;
    pid_t pid;     /* 0: in a pid namespace that the daemon cannot see into */
    bool foreign;  /* the pid is the program's own word (lockd_peer_name) */
    bool controls; /* it may change settings */
};

/* here: the daemon's own identity. The peer may not change settings. */
void lockd_peer_init(struct lockd_peer *peer, const struct lockd_identity *identity,
                     const struct lockd_identity *here, uid_t uid, pid_t pid);
/* The peer says its process id, which counts only if the kernel has told none. */
void lockd_peer_name(struct lockd_peer *peer, pid_t said);
/* Whether it lives in the daemon's own pid namespace and in no container. */
bool lockd_peer_is_beside(const struct lockd_peer *peer);

/* The user to whom that uid was given: the owner of the range in the file `subuid` (subuid(5)) that
 * has it, or uid itself where none has. An owner that the file `passwd` does not name is
 * represented by the first uid of the range. A file that cannot be read counts as empty. */
uid_t lockd_owner_of(uid_t uid, const char *subuid, const char *passwd);

/* SPDX-License-Identifier: Apache-2.0
 *
 * identity.h: who a program is, by what the kernel says of its process: no program can enter the
 * gang of another identity.
 */
#ifndef GS_LOCKD_KIN_IDENTITY_H
#define GS_LOCKD_KIN_IDENTITY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct kin_identity {
    uint32_t user;
    uint64_t user_namespace, container; /* inodes of the user and the pid namespace; 0: not to
                                           be had */
};

/* pid: the process as this one sees it; at most 0: it cannot. */
struct kin_identity kin_identity_of(uid_t user, pid_t pid);
bool kin_identity_is_same(const struct kin_identity *a, const struct kin_identity *b);

#endif

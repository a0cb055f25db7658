/* SPDX-License-Identifier: Apache-2.0
 *
 * owner.h: the users to whom the system has given more uids than their own.
 */
#pragma once

#include <sys/types.h>

/* The user to whom that uid was given: the owner of the range in the file `subuid` (subuid(5)) that
 * has it, or uid itself where none has. An owner that the file `passwd` does not name is
 * represented by the first uid of the range. A file that cannot be read counts as empty. */
uid_t lockd_owner_of(uid_t uid, const char *subuid, const char *passwd);

/* SPDX-License-Identifier: Apache-2.0
 *
 * users.c: accounts of users (few: a list will do) and the buckets that bound how fast messages
 * are taken. One thread, no I/O, no clock.
 */
#include "lockd/server/users.h"

#include "lockd/base/list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_NUMBER 0xc0000000u
#define AHEAD_NS     1000000000u /* how far ahead: a second's worth */

/* The numbers of containers' accounts begin where no uid of a process is in practice. A number
 * is not given twice while there is an account that has it. */
static uint32_t choose_number(const struct lockd_list *users)
{
    uint32_t number = FIRST_NUMBER;

    lockd_list_each (at, users) {
        const struct lockd_user *user = lockd_entry(at, struct lockd_user, link);

        if (user->container[0] != '\0' && user->number >= number)
            number = user->number + 1;
    }
    return number;
}

struct lockd_user *lockd_user_get(struct lockd_list *users, uid_t uid, const char *container)
{
    struct lockd_user *user;

    lockd_list_each (at, users) {
        user = lockd_entry(at, struct lockd_user, link);
        if (user->uid == uid && strcmp(user->container, container) == 0)
            return user;
    }
    user = calloc(1, sizeof *user);
    if (user == NULL)
        return NULL;
    user->uid = uid;
    user->number = container[0] != '\0' ? choose_number(users) : uid;
    snprintf(user->container, sizeof user->container, "%s", container);
    lockd_list_append(users, &user->link);
    return user;
}

void lockd_user_put(struct lockd_user *user)
{
    if (user->connections != 0 || user->closing.closers != 0)
        return;
    lockd_list_remove(&user->link);
    free(user);
}

bool lockd_bucket_over(uint64_t bucket, uint64_t now)
{
    return bucket > now + AHEAD_NS;
}

void lockd_bucket_take(uint64_t *bucket, uint64_t rate, uint32_t count, uint64_t now)
{
    if (*bucket < now)
        *bucket = now;
    *bucket += (uint64_t)count * 1000000000u / rate;
}

uint64_t lockd_bucket_ready(uint64_t bucket)
{
    return bucket > AHEAD_NS ? bucket - AHEAD_NS : 0;
}
